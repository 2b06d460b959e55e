//! Containers: top-level folders, and their records in the register. [`delete`] deletes them, [`list`] lists them, and
//! [`container_state`](crate::container_state) has the rules.
//!
//! A container exists if the register contains it, or if there are blobs in its folder.
//!
//! # Reads
//!
//! A read needs only the oldest incarnation with blobs. It may reuse a response of the register for some time
//! ([`BackingStore::with_container_memory`](super::BackingStore::with_container_memory)), and then asks again in a task of its own: if
//! the response is late, the read continues with the previous one, and later reads don't ask for some time. The oldest
//! incarnation only grows, so a previous response hides no blob. It may show an object of a late write.
//!
//! ```text
//!   read                               deletion in the same process
//!   asks for the container's record
//!   (the register is slow)             marks the container as being deleted, and stores that for reads
//!                                      deletes the objects
//!   gets the record without the mark: doesn't store it, since its question was the earlier one
//!
//!   read                               another read
//!   asks, gets no answer in time       asks later, stores its answer
//!   gets its response: doesn't store it, since its question was the earlier one
//!
//!   read                               deletion in any process, still incomplete
//!   has seen the mark
//!   asks again, gets no response: fails, since the blobs are hidden, or the next container's
//! ```

use std::time::Duration;

use http::Method;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::{nonce, of_driver, of_register, refused};
use ifmatch_blob::store::{
    ContainerInfo, MissingContainer, SetHeaders, StoreError, StoreErrorKind,
};
use ifmatch_core::command::{Command, Outcome, Refusal, Transition, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Version};
use ifmatch_register::{Key, RegisterErrorKind, Swap};
use ifmatch_runtime::task::{detach, timeout};

use crate::container_state::{ContainerMembers, ContainerPayload, ContainerState, LiveContainer};
use crate::member_cache::CachedMembers;
use crate::store_state::{KeptData, StoreState};

mod delete;
mod list;

/// Maximum number of attempts at a change that loses races.
const ATTEMPTS: usize = 100;
/// Maximum time after which a client should retry while a container is being deleted.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time that a read waits for the register if it has an earlier response.
const PATIENCE_WITH_ANSWER: Duration = Duration::from_millis(300);
/// Maximum time that a read waits for the register without an earlier response. Late writes in a deleted container then count as
/// blobs, so the time is longer.
const PATIENCE_WITHOUT: Duration = Duration::from_secs(2);
/// Pause before another attempt. Grows up to [`RETRY`] while another deleter has the turn.
const PAUSE: Duration = Duration::from_millis(10);
/// Key prefix of containers.
pub(crate) const KEYS: &str = "c/";

/// Returns the key of a container's record.
fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

/// What a write knows about its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerLookup {
    /// The container doesn't exist.
    Absent(ContainerMembers),
    /// The container has blobs, but no record in the register.
    Unknown(ContainerMembers),
    /// The register contains the container.
    Known(LiveContainer),
}

impl ContainerLookup {
    /// Returns the objects that are blobs of the container.
    pub(crate) fn members(&self) -> ContainerMembers {
        match self {
            Self::Absent(members) | Self::Unknown(members) => *members,
            Self::Known(home) => home.members(),
        }
    }
}

/// Looking up containers.
impl StoreState {
    /// Returns the state of a container in the register.
    pub(crate) async fn registered(
        &self,
        container: &ContainerName,
    ) -> Result<ContainerState, StoreError> {
        let record = self.container_record(container).await?;
        ContainerState::of(&record, self.driver.now())
    }

    /// Loads the record of a container, and remembers what it says, for reads and writes: a write never finds a container that this
    /// process has seen disappear.
    async fn container_record(&self, container: &ContainerName) -> Result<Record, StoreError> {
        let key = key(container)?;
        let question = self.member_cache.ask(self.driver.clock().now());
        let record = self.driver.load(&key).await.map_err(of_driver)?;
        self.member_cache.keep(
            container,
            question,
            ContainerState::of(&record, self.driver.now())?,
        );
        Ok(record)
    }

    /// Returns the state of a container for a write, from memory if it was there a moment ago.
    pub(crate) async fn container_for_write(
        &self,
        container: &ContainerName,
    ) -> Result<ContainerState, StoreError> {
        let now = self.driver.clock().now();
        if let Some(home) = self.member_cache.home(container, now) {
            return Ok(ContainerState::Known(home));
        }
        self.registered(container).await
    }

    /// Returns `true` if a container in this state exists.
    pub(crate) async fn exists(
        &self,
        container: &ContainerName,
        registered: ContainerState,
    ) -> Result<bool, StoreError> {
        match registered {
            ContainerState::Known(_) | ContainerState::Closing(..) => Ok(true),
            ContainerState::Deleting(_) => Ok(false),
            ContainerState::Gone(_) => self.has_blobs(container, registered.members()).await,
        }
    }

    /// Looks up the container of a write. Only a [`Known`](ContainerLookup::Known) one may come from memory, so be a moment old; its
    /// deletion hasn't ended yet.
    ///
    /// # Errors
    /// Same as [`StoreState::found`].
    pub(crate) async fn find_for_write(
        &self,
        container: &ContainerName,
    ) -> Result<ContainerLookup, StoreError> {
        let registered = self.container_for_write(container).await?;
        self.found(container, registered).await
    }

    /// Interprets the state of a container.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] while it is marked by a deleter. An interrupted deletion resumes in the background.
    async fn found(
        &self,
        container: &ContainerName,
        registered: ContainerState,
    ) -> Result<ContainerLookup, StoreError> {
        match registered {
            ContainerState::Known(home) => Ok(ContainerLookup::Known(home)),
            ContainerState::Closing(_, until) | ContainerState::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            ContainerState::Gone(_) => {
                let members = registered.members();
                let exists = self.has_blobs(container, members).await?;
                Ok(if exists {
                    ContainerLookup::Unknown(members)
                } else {
                    ContainerLookup::Absent(members)
                })
            }
        }
    }

    /// Returns the error for a request to a container with a deleter's mark, and resumes the deletion if necessary.
    fn deletion_in_progress(&self, container: &ContainerName, until: Timestamp) -> StoreError {
        let left = self.driver.now().until(until);
        if left.is_zero() {
            self.resume_deletion(container);
        }
        let retry_after = if left.is_zero() {
            RETRY
        } else {
            RETRY.min(left)
        };
        StoreErrorKind::InFlight { retry_after }.into()
    }

    /// Returns the container of a request that isn't bound to an incarnation.
    pub(crate) async fn home(
        &self,
        container: &ContainerName,
        missing: MissingContainer,
    ) -> Result<LiveContainer, StoreError> {
        let registered = self.registered(container).await?;
        let found = self.found(container, registered).await?;
        self.enter(container, found, missing, None).await
    }

    /// Admits a write to the container found under its blob's permit. `expected` is the incarnation to which the write
    /// is bound, if any.
    pub(crate) async fn enter(
        &self,
        container: &ContainerName,
        found: ContainerLookup,
        missing: MissingContainer,
        expected: Option<Revision>,
    ) -> Result<LiveContainer, StoreError> {
        let lost = || match missing {
            MissingContainer::Refuse => StoreErrorKind::ContainerNotFound,
            MissingContainer::Create => StoreErrorKind::InFlight { retry_after: RETRY },
        };
        // An in-memory register may have evicted the container since, and another writer may have recorded it again: the bytes belong
        // to that container, too. After a deletion, they belong to none.
        let takes = |members: ContainerMembers| {
            expected.is_none_or(|incarnation| members.include(incarnation))
        };
        if !takes(found.members()) {
            return Err(lost().into());
        }
        let adopts = match found {
            ContainerLookup::Known(home) => return Ok(home),
            ContainerLookup::Absent(_) if missing == MissingContainer::Refuse => {
                return Err(StoreErrorKind::ContainerNotFound.into());
            }
            // Parts that were sent before the eviction have the earlier incarnation.
            ContainerLookup::Absent(_) => expected.is_some(),
            ContainerLookup::Unknown(_) => true,
        };
        let home = self.remember(container, adopts).await?;
        if takes(home.members()) {
            Ok(home)
        } else {
            Err(lost().into())
        }
    }

    /// Returns the reason why a blob is missing: the blob or its container doesn't exist.
    pub(crate) async fn absent(&self, container: &ContainerName) -> StoreError {
        let found = async {
            self.found(container, self.registered(container).await?)
                .await
        };
        match found.await {
            Ok(ContainerLookup::Absent(_)) => StoreErrorKind::ContainerNotFound.into(),
            Ok(_) => StoreErrorKind::NotFound.into(),
            Err(error) => error,
        }
    }

    /// Returns the objects of a container that are blobs, for a read. If the register doesn't respond, uses its latest
    /// answer, or returns all objects without one.
    ///
    /// # Errors
    /// Fails if the register doesn't respond, and its latest response was that the container is being deleted.
    pub(crate) async fn members(
        &self,
        container: &ContainerName,
    ) -> Result<ContainerMembers, StoreError> {
        let now = self.driver.clock().now();
        let known = match self.member_cache.recall(container, now) {
            CachedMembers::Recent(members) => return Ok(members),
            CachedMembers::Paused(known) => {
                let why = "the register didn't respond a moment ago";
                return without_register(
                    container,
                    known,
                    StoreError::new(StoreErrorKind::Unavailable, why),
                );
            }
            CachedMembers::Old(known) => known,
        };
        let answer = match self.me.upgrade().filter(|_| self.member_cache.is_enabled()) {
            None => self.ask(container).await,
            Some(this) => {
                let asked = container.clone();
                let asking = detach(async move { this.ask(&asked).await });
                let limit = if known.is_some() {
                    PATIENCE_WITH_ANSWER
                } else {
                    PATIENCE_WITHOUT
                };
                match timeout(self.driver.clock(), limit, asking.result()).await {
                    Ok(answer) => answer.unwrap_or_else(|| Err(StoreErrorKind::Unavailable.into())),
                    Err(elapsed) => {
                        self.member_cache
                            .pause(container, self.driver.clock().now());
                        Err(StoreError::new(StoreErrorKind::Unavailable, elapsed))
                    }
                }
            }
        };
        answer.or_else(|error| without_register(container, known, error))
    }

    /// Asks the register for the members of a container, and stores for later reads that it fails.
    async fn ask(&self, container: &ContainerName) -> Result<ContainerMembers, StoreError> {
        let answer = self.registered(container).await;
        if answer.is_err() {
            self.member_cache
                .pause(container, self.driver.clock().now());
        }
        answer.map(|registered| registered.members())
    }
}

/// Returns the members of a container for a read while the register doesn't respond.
fn without_register(
    container: &ContainerName,
    known: Option<ContainerMembers>,
    error: StoreError,
) -> Result<ContainerMembers, StoreError> {
    tracing::debug!(%container, %error, "the register doesn't respond to a read");
    match known {
        Some(ContainerMembers::NONE) => Err(error),
        known => Ok(known.unwrap_or(ContainerMembers::ALL)),
    }
}

/// Creating and changing containers.
impl StoreState {
    /// Returns the key of a container's record, adding the record if necessary. The container must exist.
    pub(crate) async fn adopt(&self, container: &ContainerName) -> Result<Key, StoreError> {
        self.home(container, MissingContainer::Refuse).await?;
        key(container)
    }

    /// Records a container, unless it has a record by now. `adopts` includes the existing objects in its folder.
    async fn remember(
        &self,
        container: &ContainerName,
        adopts: bool,
    ) -> Result<LiveContainer, StoreError> {
        let (record, _) = self
            .record_container(container, adopts, &BlobHeaders::default())
            .await?;
        match ContainerState::of(&record, self.driver.now())? {
            ContainerState::Known(home) => Ok(home),
            ContainerState::Closing(_, until) | ContainerState::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            ContainerState::Gone(_) => Err(StoreErrorKind::Unavailable.into()),
        }
    }

    /// Records a container, unless it has a record. Only the register that owns the store assigns incarnations. Returns the
    /// record, and `true` if it is new.
    async fn record_container(
        &self,
        container: &ContainerName,
        adopts: bool,
        headers: &BlobHeaders,
    ) -> Result<(Record, bool), StoreError> {
        let (key, nonce) = (key(container)?, nonce()?);
        self.check_owner().await?;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let ContainerState::Gone(since) = ContainerState::of(&record, now)? else {
                return Ok((record, false));
            };
            let content = ContainerPayload::new(adopts.then_some(since), headers).content()?;
            let command = Write::new(&Method::PUT, &Preconditions::NONE, content, nonce);
            let command = Command::Write(command.with_lease(LeaseUse::Read(None)));
            let Transition { next, outcome, .. } = record.apply(&command, now);
            let Some(next) = next else {
                return Err(refused(outcome, now));
            };
            if self.swap(&key, &record, &next).await? {
                return Ok((next, true));
            }
            self.driver.clock().sleep(PAUSE).await;
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Replaces a record. Returns `false` if another writer was faster.
    async fn swap(&self, key: &Key, record: &Record, next: &Record) -> Result<bool, StoreError> {
        match self
            .driver
            .register()
            .compare_and_swap(key, record.revision(), Some(next))
            .await
        {
            Ok(swap) => Ok(swap == Swap::Done),
            Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {
                match self.driver.load(key).await {
                    Ok(stored) if stored == *next => Ok(true),
                    _ => Err(of_register(error)),
                }
            }
            Err(error) => Err(of_register(error)),
        }
    }

    pub(crate) async fn create_container(
        &self,
        container: &ContainerName,
        headers: &BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        let registered = self.registered(container).await?;
        if let ContainerState::Deleting(until) = registered {
            return Err(self.deletion_in_progress(container, until));
        }
        if self.exists(container, registered).await? {
            return Err(StoreErrorKind::ContainerExists.into());
        }
        match self.record_container(container, false, headers).await? {
            (record, true) => self
                .info_of(&record)?
                .ok_or_else(|| StoreErrorKind::OutcomeUnknown.into()),
            (_, false) => Err(StoreErrorKind::ContainerExists.into()),
        }
    }

    pub(crate) async fn container(
        &self,
        container: &ContainerName,
    ) -> Result<Option<ContainerInfo>, StoreError> {
        if self.keeps == KeptData::Nothing {
            return Ok(Some(unknown()));
        }
        let record = self.container_record(container).await?;
        let registered = ContainerState::of(&record, self.driver.now())?;
        if registered.exists() {
            return self.info_of(&record);
        }
        Ok(self.exists(container, registered).await?.then(unknown))
    }

    pub(crate) async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.must_keep_containers()?;
        let key = self.adopt(container).await?;
        // A container's lease protects it from deletion only.
        let request = set.request.map(|key| key.request(None));
        let nonce = nonce()?;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let registered = ContainerState::of(&record, now)?;
            if let ContainerState::Closing(_, until) = registered {
                return Err(self.deletion_in_progress(container, until));
            }
            let (ContainerState::Known(_), Some(version)) =
                (registered, record.state(now).version())
            else {
                return Err(StoreErrorKind::ContainerNotFound.into());
            };
            let payload = ContainerPayload::of(version)?;
            let headers = set.change.of(&payload.headers());
            let content = payload.later(version).with_headers(&headers).content()?;
            let command = Write::new(&Method::PUT, &set.preconditions, content, nonce)
                .with_lease(LeaseUse::Read(set.lease.id()))
                .with_based_on(Some(version.generation()))
                .with_request(request);
            let applied = self
                .driver
                .apply_in_turn(&key, &Command::Write(command))
                .await
                .map_err(of_driver)?;
            match applied.outcome {
                Outcome::Refused(Refusal::Stale) => self.driver.clock().sleep(PAUSE).await,
                Outcome::Written(_) | Outcome::Replayed(_) => {
                    return self
                        .info_of(&applied.after)?
                        .ok_or_else(|| StoreErrorKind::ContainerNotFound.into());
                }
                outcome => return Err(refused(outcome, self.driver.now()).of_container()),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    fn info_of(&self, record: &Record) -> Result<Option<ContainerInfo>, StoreError> {
        let now = self.driver.now();
        record
            .state(now)
            .version()
            .map(|version| info(record, version, now))
            .transpose()
    }
}

/// Returns the properties of a container from a version in its record, read at `now`.
///
/// # Errors
/// [`StoreErrorKind::Unreadable`], as for [`ContainerPayload::of`].
fn info(record: &Record, version: &Version, now: Timestamp) -> Result<ContainerInfo, StoreError> {
    let payload = ContainerPayload::of(version)?;
    Ok(ContainerInfo {
        tag: version.tags().first().cloned(),
        last_modified: Some(version.last_modified()),
        created: Some(payload.home(version).incarnation.timestamp()),
        headers: payload.headers(),
        lease: record.seen_lease(now),
    })
}

/// Returns the properties of a container with blobs but without a record.
fn unknown() -> ContainerInfo {
    let headers = BlobHeaders::default();
    ContainerInfo {
        tag: None,
        last_modified: None,
        headers,
        created: None,
        lease: None,
    }
}
