//! One register made of several, each with a part of the keys.

use std::time::Duration;

use futures_util::future::try_join_all;
use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_runtime::{Clock, SystemClock, nonce};

use crate::any::AnyRegister;
use crate::engine_clock::EngineTime;
use crate::key::Key;
use crate::register::{Epoch, Guarantee, Register, RegisterError, RegisterErrorKind, Scan, Swap};

/// Key of a shard's record with its place. Not visible through the sharded register.
const KEY: &str = "i/shard";
/// Maximum number of attempts at a place that another process is writing.
const ATTEMPTS: usize = 16;
/// Contents of a register without a place.
const LOST: &str = "has other records, or has lost them";
/// State of the first shard once all have their places.
const COMPLETE: &str = "complete";

/// A register made of several. Each key belongs to one of them, selected by the key's hash, so the guarantees for a key
/// are those of its shard. A listing asks all shards.
///
/// Each shard stores the number of shards and its own index, so that a process with another list of shards does not
/// start.
///
/// ```
/// use ifmatch_register::{AnyRegister, MemoryRegister, ShardedRegister};
///
/// # async fn run() -> Result<(), ifmatch_register::ShardError> {
/// let shards = (0..3).map(|_| AnyRegister::new(MemoryRegister::unbounded())).collect();
/// let register = ShardedRegister::open(shards).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ShardedRegister {
    shards: Vec<AnyRegister>,
}

/// The shards cannot be used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A shard failed.
    #[error("register {index} failed: {error}")]
    Register {
        /// Position in the list, from 0.
        index: usize,
        /// The shard's error.
        error: RegisterError,
    },
    /// A register already has another place, or holds records without a place.
    #[error("register {index} {found}: give all registers that were used together, in the same order")]
    Misplaced {
        /// Position in the list, from 0.
        index: usize,
        /// The register's contents.
        found: String,
    },
}

/// The place of a shard, as stored in it: `cluster/count/index/state`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Random name that all shards of one register share.
    cluster: String,
    count: usize,
    index: usize,
    /// `true` in the first shard once all have their places: an empty shard has then lost its records.
    is_complete: bool,
}

impl ShardedRegister {
    /// Combines registers. At first use, each is given its place; they must be empty.
    ///
    /// # Errors
    /// [`ShardError::Misplaced`] if a register has another place, has lost its place, or holds records without one.
    pub async fn open(shards: Vec<AnyRegister>) -> Result<Self, ShardError> {
        let Some(first) = shards.first() else { return Ok(Self { shards }) };
        let failed = |index| move |error| ShardError::Register { index, error };
        let misplaced = |index, found: String| ShardError::Misplaced { index, found };
        let cluster = format!("{:016x}", nonce().map_err(RegisterError::from).map_err(failed(0))?);
        let new = Place { cluster, count: shards.len(), index: 0, is_complete: false };
        // Another process may start at the same time. The place in the first shard decides.
        let decided = new.claim(first).await.map_err(failed(0))?;
        let Place { cluster, is_complete, .. } = decided.ok_or_else(|| misplaced(0, LOST.to_owned()))?;
        let place = |index, is_complete| Place { cluster: cluster.clone(), count: shards.len(), index, is_complete };
        for (index, shard) in shards.iter().enumerate() {
            let expected = place(index, is_complete && index == 0);
            let found = if is_complete { Place::of(shard).await } else { expected.claim(shard).await };
            match found.map_err(failed(index))? {
                Some(found) if found.is_like(&expected) => {}
                Some(Place { cluster, count, index: at, .. }) => {
                    let found = format!("is number {} of the {count} registers of cluster {cluster}", at + 1);
                    return Err(ShardError::Misplaced { index, found });
                }
                None => {
                    return Err(ShardError::Misplaced { index, found: "has other records, or has lost them".into() });
                }
            }
        }
        if !is_complete {
            place(0, true).complete(first).await.map_err(failed(0))?;
        }
        Ok(Self { shards })
    }

    /// Verifies that a register is used alone, and is not one of several.
    ///
    /// # Errors
    /// [`ShardError::Misplaced`] if it is one of several.
    ///
    /// ```
    /// use ifmatch_register::{AnyRegister, MemoryRegister, ShardedRegister};
    ///
    /// # async fn run() {
    /// let register = AnyRegister::new(MemoryRegister::unbounded());
    /// assert!(ShardedRegister::check_single(&register).await.is_ok());
    /// # }
    /// ```
    pub async fn check_single(register: &AnyRegister) -> Result<(), ShardError> {
        match Place::of(register).await.map_err(|error| ShardError::Register { index: 0, error })? {
            None => Ok(()),
            Some(place) => {
                let found = format!("is number {} of {} registers", place.index + 1, place.count);
                Err(ShardError::Misplaced { index: 0, found })
            }
        }
    }

    fn shard(&self, key: &Key) -> Result<&AnyRegister, RegisterError> {
        let hash = ContentHash::of(key.as_str().as_bytes());
        let slot = hash.as_bytes().iter().take(4).fold(0_u64, |slot, byte| slot << 8 | u64::from(*byte));
        // The product of a 32-bit fraction and the count: a range of slots for each shard.
        let index = slot.saturating_mul(self.shards.len() as u64) >> 32;
        let shard = usize::try_from(index).ok().and_then(|index| self.shards.get(index));
        shard.filter(|_| key.as_str() != KEY).ok_or_else(|| RegisterErrorKind::Unavailable.into())
    }
}

impl Place {
    async fn of(shard: &AnyRegister) -> Result<Option<Self>, RegisterError> {
        shard.load(&key()?).await?.map(|record| Self::read(&record)).transpose()
    }

    /// Gives a shard this place, unless it has one. Returns its place, or `None` if it has records but no place.
    async fn claim(&self, shard: &AnyRegister) -> Result<Option<Self>, RegisterError> {
        for _ in 0..ATTEMPTS {
            if let Some(place) = Self::of(shard).await? {
                return Ok(Some(place));
            }
            if !shard.scan(&Scan { prefix: "", after: None, limit: 1 }).await?.is_empty() {
                // Another process may have placed it meanwhile.
                return Self::of(shard).await;
            }
            match shard.compare_and_swap(&key()?, Revision::NONE, Some(&self.record(&Record::unknown())?)).await {
                Ok(Swap::Done | Swap::Conflict(_)) => {}
                Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {}
                Err(error) => return Err(error),
            }
        }
        Err(RegisterErrorKind::Unavailable.into())
    }

    /// Replaces the place of the first shard by this one, unless another process has done so.
    async fn complete(&self, first: &AnyRegister) -> Result<(), RegisterError> {
        for _ in 0..ATTEMPTS {
            let Some(record) = first.load(&key()?).await? else { break };
            if Self::read(&record)? == *self {
                return Ok(());
            }
            match first.compare_and_swap(&key()?, record.revision(), Some(&self.record(&record)?)).await {
                Ok(Swap::Done | Swap::Conflict(_)) => {}
                Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {}
                Err(error) => return Err(error),
            }
        }
        Err(RegisterErrorKind::Unavailable.into())
    }

    /// Returns `true` for the same place, complete or not.
    fn is_like(&self, other: &Self) -> bool {
        (&self.cluster, self.count, self.index) == (&other.cluster, other.count, other.index)
    }

    fn read(record: &Record) -> Result<Self, RegisterError> {
        let payload = record.state(SystemClock.now()).version().map(|version| version.payload().to_vec());
        let text = payload.and_then(|payload| String::from_utf8(payload).ok());
        text.as_deref().and_then(Self::parse).ok_or_else(|| RegisterErrorKind::Unreadable.into())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let cluster = parts.next()?.to_owned();
        let (count, index) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { cluster, count, index, is_complete: parts.next()? == COMPLETE })
    }

    /// Returns the record that replaces `before`.
    fn record(&self, before: &Record) -> Result<Record, RegisterError> {
        let state = if self.is_complete { COMPLETE } else { "new" };
        let text = format!("{}/{}/{}/{state}", self.cluster, self.count, self.index);
        let content = Content::Hashed { hash: ContentHash::of(b""), payload: text.into() };
        let write = Write::new(&Method::PUT, &Preconditions::NONE, content, nonce()?).with_lease(LeaseUse::Read(None));
        let next = before.apply(&Command::Write(write), SystemClock.now()).next;
        next.ok_or_else(|| RegisterErrorKind::Unavailable.into())
    }
}

fn key() -> Result<Key, RegisterError> {
    Key::new(KEY).map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error))
}

#[deny(clippy::missing_trait_methods)]
impl Register for ShardedRegister {
    /// Returns the weakest guarantee of the shards.
    fn guarantee(&self) -> Guarantee {
        let has = |guarantee| self.shards.iter().any(|shard| shard.guarantee() == guarantee);
        let weakest = [Guarantee::UntilFailover, Guarantee::Process].into_iter().find(|guarantee| has(*guarantee));
        weakest.unwrap_or(Guarantee::Linearizable)
    }

    /// Returns the epoch of the key's shard, with the number of failovers of all shards.
    fn epoch(&self, key: &Key) -> Epoch {
        let number = self.shards.iter().map(|shard| shard.epoch(key).number).sum();
        self.shard(key).map_or_else(|_| Epoch::default(), |shard| Epoch { number, ..shard.epoch(key) })
    }

    /// Returns the time of the key's shard. The shards' engines have clocks of their own.
    fn time(&self, key: &Key) -> Option<EngineTime> {
        self.shard(key).ok()?.time(key)
    }

    /// Returns the largest error of the shards.
    fn clock_error(&self) -> Option<Duration> {
        let errors: Option<Vec<_>> = self.shards.iter().map(Register::clock_error).collect();
        errors?.into_iter().max()
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.shard(key)?.load(key).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.shard(key).ok()?.revision_at_once(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.shard(key)?.compare_and_swap(key, expected, next).await
    }

    /// Asks each shard for a page, and merges the pages. A record beyond the end of the merged page belongs to the next.
    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        // One more, since a page may include the record of the shard's place.
        let wider = Scan { limit: scan.limit.saturating_add(1), ..*scan };
        let pages = try_join_all(self.shards.iter().map(|shard| shard.scan(&wider))).await?;
        let mut merged: Vec<_> = pages.into_iter().flatten().filter(|(key, _)| key.as_str() != KEY).collect();
        merged.sort_by(|(left, _), (right, _)| left.cmp(right));
        merged.truncate(scan.limit);
        Ok(merged)
    }
}
