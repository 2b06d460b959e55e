//! The container of a blob. A container of the same name can be created and deleted repeatedly; each has an
//! incarnation, which its objects carry.
//!
//! An object of an older incarnation is not a blob: it is a late write overtaken by a deletion. A write therefore never
//! slips past a deletion, even if the network or a listing of the register reorders them.
//!
//! # Reads
//!
//! A read needs only the oldest incarnation with blobs. It may reuse an answer of the register for some time
//! ([`Backing::with_container_memory`](super::Backing::with_container_memory)), and then asks again in a task of its own: if
//! the answer is late, the read continues with the previous one, and later reads do not ask for some time. The oldest
//! incarnation only grows, so that a previous answer hides no blob. It may show an object of a late write.
//!
//! ```text
//!   read                               deletion in the same process
//!   asks for the container's record
//!   (the register is slow)             marks the container as being deleted, and stores that for reads
//!                                      deletes the objects
//!   gets the record without the mark: does not store it, since its question was the earlier one
//!
//!   read                               another read
//!   asks, gets no answer in time       asks later, stores its answer
//!   gets its answer: does not store it, since its question was the earlier one
//!
//!   read                               deletion in any process, still incomplete
//!   has seen the mark
//!   asks again, gets no answer: fails, since the blobs are hidden, or those of the next container
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Command, Content, Transition, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, State, Version};
use ifmatch_register::{Key, RegisterErrorKind, Swap};
use ifmatch_runtime::nonce;
use ifmatch_runtime::task::{detach, timeout};
use serde::{Deserialize, Serialize};

use super::failure::refused;
use super::members::{Members, Question, Recall};
use super::permit::{of_driver, of_register};
use super::shared::Shared;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{MissingContainer, StoreError, StoreErrorKind};

/// Maximum number of attempts at a change that loses races.
pub(super) const ATTEMPTS: usize = 100;
/// Maximum time after which a client should retry while a container is being deleted.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Maximum time that a read waits for the register if it has an earlier answer.
const PATIENCE_WITH_ANSWER: Duration = Duration::from_millis(300);
/// Maximum time that a read waits for the register without an earlier answer. Late writes in a deleted container then count as
/// blobs, so the time is longer.
const PATIENCE_WITHOUT: Duration = Duration::from_secs(2);
/// Key prefix of containers.
pub(super) const KEYS: &str = "c/";

/// Returns the key of a container's record.
pub(super) fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

/// A container in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// Revision that created the container, larger than that of any earlier container of this name.
    pub(super) incarnation: Revision,
    /// Oldest incarnation with blobs in the container: its own, unless it was adopted with existing objects.
    since: Revision,
}

impl Home {
    /// Returns the objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        Members::since(self.since)
    }

    #[cfg(test)]
    pub(super) fn of_tests(revision: u64) -> Self {
        Self { incarnation: Revision::new(revision), since: Revision::new(revision) }
    }
}

/// The state of a container in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    /// The container exists.
    Known(Home),
    /// The container exists and takes no writes while a deleter finds out if it is empty. Its turn ends at this time.
    Closing(Home, Timestamp),
    /// The container is being deleted. The current deleter's turn ends at this time.
    Deleting(Timestamp),
    /// The container does not exist, unless its folder contains objects of this incarnation or a later one.
    Gone(Revision),
}

impl Registered {
    /// Reads a container's record.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unreadable`], as for [`Payload::of`].
    pub(super) fn of(record: &Record, now: Timestamp) -> Result<Self, StoreError> {
        let version = match record.state(now) {
            State::Present(version) => version,
            State::Absent => return Ok(Self::Gone(record.revision())),
            State::Unknown => return Ok(Self::Gone(Revision::NONE)),
        };
        let payload = Payload::of(version)?;
        let home = payload.home(version);
        Ok(match (payload.deleting, payload.closing) {
            (Some(until), _) => Mark::Deleting.registered(home, until),
            (None, Some(until)) => Mark::Closing.registered(home, until),
            (None, None) => Self::Known(home),
        })
    }

    /// Returns `true` if the container exists, so that its blobs can be read.
    pub(super) fn exists(&self) -> bool {
        matches!(self, Self::Known(_) | Self::Closing(..))
    }

    /// Returns the objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        match self {
            Self::Known(home) | Self::Closing(home, _) => home.members(),
            Self::Deleting(_) => Members::NONE,
            Self::Gone(since) => Members::since(*since),
        }
    }
}

/// The state of the container found by a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The container does not exist.
    Absent(Members),
    /// The container has blobs, but no record in the register.
    Unknown(Members),
    /// The register contains the container.
    Known(Home),
}

impl Found {
    /// Returns the objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        match self {
            Self::Absent(members) | Self::Unknown(members) => *members,
            Self::Known(home) => home.members(),
        }
    }
}

impl Shared {
    /// Returns the state of a container in the register.
    pub(super) async fn registered(&self, container: &ContainerName) -> Result<Registered, StoreError> {
        let record = self.container_record(container).await?;
        Registered::of(&record, self.driver.now())
    }

    /// Loads the record of a container, and remembers what it says: a write never finds a container that this process has seen
    /// disappear.
    pub(super) async fn container_record(&self, container: &ContainerName) -> Result<Record, StoreError> {
        let key = key(container)?;
        let question = self.member_cache.ask(self.driver.clock().now());
        let record = self.driver.load(&key).await.map_err(of_driver)?;
        self.member_cache.keep(container, question, Registered::of(&record, self.driver.now())?);
        Ok(record)
    }

    /// Looks up a container.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] while it is marked by a deleter. An interrupted deletion resumes in the background.
    pub(super) async fn find(&self, container: &ContainerName) -> Result<Found, StoreError> {
        let registered = self.registered(container).await?;
        self.found(container, registered).await
    }

    /// Looks up the container of a write. It existed a moment ago at least, and its deletion has not ended yet.
    ///
    /// # Errors
    /// As for [`Shared::find`].
    pub(super) async fn find_for_write(&self, container: &ContainerName) -> Result<Found, StoreError> {
        let registered = self.container_for_write(container).await?;
        self.found(container, registered).await
    }

    /// Returns the state of a container for a write, from memory if it was there a moment ago.
    pub(super) async fn container_for_write(&self, container: &ContainerName) -> Result<Registered, StoreError> {
        let now = self.driver.clock().now();
        if let Some(home) = self.member_cache.home(container, now) {
            return Ok(Registered::Known(home));
        }
        self.registered(container).await
    }

    async fn found(&self, container: &ContainerName, registered: Registered) -> Result<Found, StoreError> {
        match registered {
            Registered::Known(home) => Ok(Found::Known(home)),
            Registered::Closing(_, until) | Registered::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            gone @ Registered::Gone(_) => {
                let members = gone.members();
                let exists = self.has_blobs(container, members).await?;
                Ok(if exists { Found::Unknown(members) } else { Found::Absent(members) })
            }
        }
    }

    /// Returns the error for a request to a container with a deleter's mark, and resumes the deletion if necessary.
    pub(super) fn deletion_in_progress(&self, container: &ContainerName, until: Timestamp) -> StoreError {
        let left = self.driver.now().until(until);
        if left.is_zero() {
            self.resume_deletion(container);
        }
        let retry_after = if left.is_zero() { RETRY } else { RETRY.min(left) };
        StoreErrorKind::InFlight { retry_after }.into()
    }

    /// Returns the container, or an error if it does not exist.
    pub(super) async fn expect(&self, container: &ContainerName) -> Result<Home, StoreError> {
        match self.find(container).await? {
            Found::Absent(_) => Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Unknown(_) => self.remember(container, true).await,
            Found::Known(home) => Ok(home),
        }
    }

    /// Returns the container, creating it if necessary.
    pub(super) async fn ensure(&self, container: &ContainerName) -> Result<Home, StoreError> {
        match self.find(container).await? {
            Found::Absent(_) => self.remember(container, false).await,
            Found::Unknown(_) => self.remember(container, true).await,
            Found::Known(home) => Ok(home),
        }
    }

    /// Admits a write to the container found under its blob's permit. `expected` is the incarnation to which the write
    /// is bound, if any.
    pub(super) async fn enter(
        &self,
        container: &ContainerName,
        found: Found,
        missing: MissingContainer,
        expected: Option<Revision>,
    ) -> Result<Home, StoreError> {
        let lost = || match missing {
            MissingContainer::Refuse => StoreErrorKind::ContainerNotFound,
            MissingContainer::Create => StoreErrorKind::InFlight { retry_after: RETRY },
        };
        let is_lost = expected.is_some_and(|expected| match found {
            Found::Known(home) => home.incarnation != expected,
            // An in-memory register may have evicted the container; after a deletion, the bytes belong to no container.
            Found::Unknown(members) | Found::Absent(members) => !members.include(expected),
        });
        match found {
            _ if is_lost => Err(lost().into()),
            Found::Known(home) => Ok(home),
            Found::Absent(_) if missing == MissingContainer::Refuse => Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Absent(_) => self.remember(container, false).await,
            Found::Unknown(_) => self.remember(container, true).await,
        }
    }

    /// Returns the reason why a blob is missing: the blob or its container does not exist.
    pub(super) async fn absent(&self, container: &ContainerName) -> StoreError {
        match self.find(container).await {
            Ok(Found::Absent(_)) => StoreErrorKind::ContainerNotFound.into(),
            Ok(_) => StoreErrorKind::NotFound.into(),
            Err(error) => error,
        }
    }

    /// Records a container, unless it has a record by now. `adopts` includes the existing objects in its folder.
    async fn remember(&self, container: &ContainerName, adopts: bool) -> Result<Home, StoreError> {
        let created = self.record_container(container, adopts, BTreeMap::new()).await?;
        match Registered::of(&created.record, self.driver.now())? {
            Registered::Known(home) => Ok(home),
            Registered::Closing(_, until) | Registered::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            Registered::Gone(_) => Err(StoreErrorKind::Unavailable.into()),
        }
    }

    /// Records a container, unless it has a record. Only the register that owns the store assigns incarnations.
    pub(super) async fn record_container(
        &self,
        container: &ContainerName,
        adopts: bool,
        metadata: BTreeMap<String, String>,
    ) -> Result<Recorded, StoreError> {
        let (key, nonce) = (key(container)?, nonce().map_err(of_register)?);
        self.check_owner().await?;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let Registered::Gone(since) = Registered::of(&record, now)? else {
                return Ok(Recorded { record, is_new: false });
            };
            let payload = Payload { since: adopts.then_some(since), metadata: metadata.clone(), ..Payload::default() };
            let command = Write::new(&Method::PUT, &Preconditions::NONE, payload.content()?, nonce)
                .with_lease(LeaseUse::Read(None));
            let Transition { next, outcome, .. } = record.apply(&Command::Write(command), now);
            let Some(next) = next else { return Err(refused(outcome, now)) };
            if self.swap(&key, &record, &next).await? {
                return Ok(Recorded { record: next, is_new: true });
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Replaces a record. Returns `false` if another writer was faster.
    async fn swap(&self, key: &Key, record: &Record, next: &Record) -> Result<bool, StoreError> {
        match self.driver.register().compare_and_swap(key, record.revision(), Some(next)).await {
            Ok(swap) => Ok(swap == Swap::Done),
            Err(error) if error.kind() == RegisterErrorKind::Ambiguous => match self.driver.load(key).await {
                Ok(stored) if stored == *next => Ok(true),
                _ => Err(of_register(error)),
            },
            Err(error) => Err(of_register(error)),
        }
    }
}

/// A container's record after an attempt to create it.
pub(super) struct Recorded {
    pub(super) record: Record,
    /// `true` if this attempt created it.
    pub(super) is_new: bool,
}

/// The part of a container's version that is opaque to the register.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Payload {
    /// Generation of the first version, `None` in the first version itself.
    created: Option<Revision>,
    /// Oldest incarnation with blobs in the container, if not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Revision>,
    /// End of the current deleter's turn. Set once deletion of the container has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting: Option<Timestamp>,
    /// The same, while the container is still there and may be found to have blobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closing: Option<Timestamp>,
    metadata: BTreeMap<String, String>,
}

/// The mark of a deleter in a container's record. It refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The container is deleted if it is empty, see [`close_container`](super::close_container). Until then, its blobs can be read.
    Closing,
    /// The container is deleted with its blobs, which cannot be read any more.
    Deleting,
}

impl Mark {
    /// Returns the state of a container that has the mark until then.
    pub(super) fn registered(self, home: Home, until: Timestamp) -> Registered {
        match self {
            Self::Closing => Registered::Closing(home, until),
            Self::Deleting => Registered::Deleting(until),
        }
    }
}

impl Payload {
    /// Reads a version's payload.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unreadable`]. Without it, nobody knows if the container is being deleted, so it takes no writes.
    pub(super) fn of(version: &Version) -> Result<Self, StoreError> {
        serde_json::from_slice(version.payload()).map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))
    }

    /// Returns the payload of a container whose blobs are all objects in its folder.
    pub(super) fn of_all_objects() -> Self {
        Self { since: Some(Revision::NONE), ..Self::default() }
    }

    /// Converts the payload for a later version.
    pub(super) fn later(self, version: &Version) -> Self {
        let Home { incarnation, since } = self.home(version);
        Self { created: Some(incarnation), since: Some(since), ..self }
    }

    /// Replaces the user's own fields.
    pub(super) fn with_headers(self, headers: &BlobHeaders) -> Self {
        Self { metadata: texts(headers), ..self }
    }

    /// Marks the container, with the end of the deleter's turn.
    pub(super) fn marked(self, mark: Mark, until: Timestamp) -> Self {
        match mark {
            Mark::Closing => Self { deleting: None, closing: Some(until), ..self },
            Mark::Deleting => Self { deleting: Some(until), closing: None, ..self },
        }
    }

    /// Removes the mark.
    pub(super) fn open(self) -> Self {
        Self { deleting: None, closing: None, ..self }
    }

    /// Returns the container at this version.
    pub(super) fn home(&self, version: &Version) -> Home {
        let incarnation = self.created.unwrap_or(version.generation());
        Home { incarnation, since: self.since.unwrap_or(incarnation) }
    }

    /// Returns the user's own fields.
    pub(super) fn headers(self) -> BlobHeaders {
        let field = |(name, value): (String, String)| Some((name.into(), FieldText::new(&value).ok()?));
        BlobHeaders { metadata: self.metadata.into_iter().filter_map(field).collect(), ..BlobHeaders::default() }
    }

    /// Returns when the container was created.
    pub(super) fn created(&self, version: &Version) -> Timestamp {
        self.home(version).incarnation.timestamp()
    }

    /// Encodes the payload.
    pub(super) fn content(&self) -> Result<Content, StoreError> {
        let payload = serde_json::to_vec(self);
        let payload = payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(Content::Hashed { hash: ContentHash::of(b""), payload: payload.into() })
    }
}

/// Returns the user's own fields as text.
pub(super) fn texts(headers: &BlobHeaders) -> BTreeMap<String, String> {
    headers.metadata.iter().map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect()
}

impl Shared {
    /// Returns the objects of a container that are blobs, for a read. If the register does not answer, the latest answer
    /// counts, or all objects if there is none.
    ///
    /// # Errors
    /// Fails if the register does not answer, and its latest answer was that the container is being deleted.
    pub(super) async fn members(&self, container: &ContainerName) -> Result<Members, StoreError> {
        let now = self.driver.clock().now();
        let known = match self.member_cache.recall(container, now) {
            Recall::Recent(members) => return Ok(members),
            Recall::Paused(known) => {
                let why = "the register did not answer a moment ago";
                return without_register(container, known, StoreError::new(StoreErrorKind::Unavailable, why));
            }
            Recall::Old(known) => known,
        };
        let question = self.member_cache.ask(now);
        let answer = match self.me.upgrade().filter(|_| self.member_cache.is_enabled()) {
            None => self.ask(container, question).await,
            Some(this) => {
                let asked = container.clone();
                let asking = detach(async move { this.ask(&asked, question).await });
                let limit = if known.is_some() { PATIENCE_WITH_ANSWER } else { PATIENCE_WITHOUT };
                match timeout(self.driver.clock(), limit, asking.result()).await {
                    Ok(answer) => answer.unwrap_or_else(|| Err(StoreErrorKind::Unavailable.into())),
                    Err(elapsed) => {
                        self.member_cache.pause(container, self.driver.clock().now());
                        Err(StoreError::new(StoreErrorKind::Unavailable, elapsed))
                    }
                }
            }
        };
        answer.or_else(|error| without_register(container, known, error))
    }

    /// Asks the register for the members of a container, and stores the answer for later reads.
    async fn ask(&self, container: &ContainerName, question: Question) -> Result<Members, StoreError> {
        let answer = self.registered(container).await;
        match &answer {
            Ok(registered) => self.member_cache.keep(container, question, *registered),
            Err(_) => self.member_cache.pause(container, self.driver.clock().now()),
        }
        answer.map(|registered| registered.members())
    }
}

/// Returns the members of a container for a read while the register does not answer.
fn without_register(
    container: &ContainerName,
    known: Option<Members>,
    error: StoreError,
) -> Result<Members, StoreError> {
    tracing::debug!(%container, %error, "the register does not answer a read");
    match known {
        Some(Members::NONE) => Err(error),
        known => Ok(known.unwrap_or(Members::ALL)),
    }
}
