//! A register in memory.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ifmatch_core::date::HttpDate;
use ifmatch_core::record::{Record, Revision};
use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;

use crate::key::Key;
use crate::register::{Engine, Guarantee, Register, RegisterError, RegisterErrorKind, Scan, Swap};

/// Number of parts that are locked separately.
const SHARDS: usize = 64;
/// Number of slots per shard for the revisions of evicted records. Keys that share a slot are revalidated needlessly after
/// an eviction.
const FORGOTTEN: usize = 256;
/// Number of records that a full shard checks to find one to evict.
const EVICTION_TRIES: usize = 32;

/// In-memory register, for a single process or for tests. Its records end with the process.
///
/// With a limit, it evicts records that a probe of the resource would restore. To make room, it examines up to 32 records of
/// the key's shard. If each of them belongs to a write in flight or a lease, it takes no new record and fails with
/// [`RegisterErrorKind::Full`], even if other records could be evicted. Existing records can still be changed. Without a
/// limit, it evicts nothing.
#[derive(Debug)]
pub struct MemoryRegister {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    shard_limit: Limit,
}

/// The maximum of a shard.
#[derive(Clone, Copy, Debug)]
struct Limit {
    records: usize,
    bytes: usize,
}

/// The records that one lock protects.
#[derive(Debug)]
struct Shard {
    records: IndexMap<Key, Record, RandomState>,
    /// Size of the records in memory, in bytes.
    bytes: usize,
    /// Highest revision and latest date of evicted records, by the hash of the key. A key without a record has this
    /// revision, so a read which began before the eviction can't record a stale observation.
    forgotten: Box<[(Revision, HttpDate); FORGOTTEN]>,
}

impl MemoryRegister {
    /// Creates a register of at most about `records` records, for services whose resources can be probed.
    pub fn with_capacity(records: usize) -> Self {
        Self::limited(Limit {
            records: records.div_ceil(SHARDS).max(1),
            bytes: usize::MAX,
        })
    }

    /// Creates a register that takes at most about `bytes` of memory, for services whose resources can be probed. A
    /// record takes about 1 KiB. Use at least 1 MiB.
    pub fn with_memory(bytes: usize) -> Self {
        Self::limited(Limit {
            records: usize::MAX,
            bytes: bytes / SHARDS,
        })
    }

    fn limited(shard_limit: Limit) -> Self {
        let hasher = RandomState::new();
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(Shard::new(hasher.clone())))
            .collect();
        Self {
            shards,
            hasher,
            shard_limit,
        }
    }

    /// Creates a register that evicts nothing, for stores that use it as their index.
    pub fn unbounded() -> Self {
        Self::with_capacity(usize::MAX)
    }

    /// Returns the shard of a key and the key's hash.
    fn shard(&self, key: &Key) -> (MutexGuard<'_, Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // Uses other bits than the shard's own table.
        let number = index((hash >> 32) % SHARDS as u64);
        (lock(&self.shards[number]), hash)
    }

    fn swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let (mut shard, hash) = self.shard(key);
        let found = shard.find(key, hash);
        if found.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(found));
        }
        match next {
            Some(next) => shard.put(key, next, self.shard_limit)?,
            None => shard.remove(key),
        }
        Ok(Swap::Done)
    }

    fn page(&self, scan: &Scan<'_>) -> Vec<(Key, Record)> {
        let listed = |key: &Key| {
            key.as_str().starts_with(scan.prefix)
                && scan.after.is_none_or(|after| key.as_str() > after)
        };
        let mut page: Vec<(Key, Record)> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let records = shard.records.iter().filter(|(key, _)| listed(key));
            page.extend(records.map(|(key, record)| (key.clone(), record.clone())));
            page.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
            page.truncate(scan.limit);
        }
        page
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let (shard, hash) = self.shard(key);
        Ok(shard.find(key, hash))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swap(key, expected, next)
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Ok(self.page(scan))
    }

    fn engine(&self) -> Engine {
        Engine {
            guarantee: Guarantee::Process,
            ..Engine::default()
        }
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        let (shard, hash) = self.shard(key);
        Some(shard.revision(key, hash))
    }
}

impl Shard {
    fn new(hasher: RandomState) -> Self {
        Self {
            records: IndexMap::with_hasher(hasher),
            bytes: 0,
            forgotten: Box::new([(Revision::NONE, HttpDate::MIN); FORGOTTEN]),
        }
    }

    fn find(&self, key: &Key, hash: u64) -> Option<Record> {
        let (revision, latest) = self.forgotten[slot(hash)];
        let forgotten =
            || (revision > Revision::NONE).then(|| Record::forgotten(revision).dated(latest));
        self.record(key, hash).cloned().or_else(forgotten)
    }

    fn revision(&self, key: &Key, hash: u64) -> Revision {
        self.record(key, hash)
            .map_or_else(|| self.forgotten[slot(hash)].0, Record::revision)
    }

    fn record(&self, key: &Key, hash: u64) -> Option<&Record> {
        self.records
            .raw_entry_v1()
            .from_key_hashed_nocheck(hash, key)
            .map(|(_, record)| record)
    }

    fn remove(&mut self, key: &Key) {
        if let Some((key, record)) = self.records.swap_remove_entry(key) {
            self.bytes -= size(&key, &record);
        }
    }

    /// Puts a record. A new record evicts others until the shard is within its limit, which growth of existing records may exceed.
    fn put(&mut self, key: &Key, next: &Record, limit: Limit) -> Result<(), RegisterError> {
        let size = size(key, next);
        let before = self
            .records
            .get(key)
            .map_or(0, |record| self::size(key, record));
        let is_new = before == 0;
        while !self.records.is_empty()
            && (self.records.len() + usize::from(is_new) > limit.records
                || self.bytes.saturating_add(size) - before > limit.bytes)
        {
            match self.forget_one(next.revision(), key) {
                Err(_) if !is_new => break,
                evicted => evicted?,
            }
        }
        self.bytes = self.bytes + size - before;
        match self.records.get_mut(key) {
            Some(record) => *record = next.clone(),
            None => drop(self.records.insert(key.clone(), next.clone())),
        }
        Ok(())
    }

    /// Evicts an arbitrary record other than `spared`'s that a probe would restore. The newcomer's revision is close to the current time.
    fn forget_one(&mut self, newcomer: Revision, spared: &Key) -> Result<(), RegisterError> {
        let len = self.records.len();
        let start = index(newcomer.get() % len as u64);
        let idle = (start..start + EVICTION_TRIES.min(len))
            .map(|at| at % len)
            .find(|at| {
                let found = self.records.get_index(*at);
                found.is_some_and(|(key, record)| {
                    key != spared && record.is_idle(newcomer.timestamp())
                })
            });
        let (key, record) = idle
            .and_then(|at| self.records.swap_remove_index(at))
            .ok_or(RegisterErrorKind::Full)?;
        self.bytes -= size(&key, &record);
        let (revision, latest) = &mut self.forgotten[slot(self.records.hasher().hash_one(&key))];
        *revision = record.revision().max(*revision);
        *latest = record.latest_date().max(*latest);
        Ok(())
    }
}

/// Returns the approximate size of a record in memory, in bytes. Its place counts twice, since the table grows by doubling.
fn size(key: &Key, record: &Record) -> usize {
    let place = size_of::<(u64, Key, Record)>() + 2 * size_of::<usize>();
    2 * place + key.as_str().len() + record.size() - size_of::<Record>()
}

/// Returns the slot for the revisions of evicted records with this hash.
fn slot(hash: u64) -> usize {
    index(hash % FORGOTTEN as u64)
}

#[expect(clippy::expect_used, reason = "the number is a remainder of a usize")]
fn index(remainder: u64) -> usize {
    usize::try_from(remainder).expect("less than a usize")
}

/// No code panics while it holds the lock, so a poisoned shard is whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
