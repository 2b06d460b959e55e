//! Containers: top-level folders, and their records in the register. Deletion is in [`delete`], the rules in [`state`].
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

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::{nonce, of_driver, of_register, refused};
use ifmatch_blob::store::{
    ContainerEntry, ContainerInfo, ListQuery, MissingContainer, Page, SetHeaders, StoreError,
    StoreErrorKind,
};
use ifmatch_core::command::{Command, Outcome, Refusal, Transition, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Version};
use ifmatch_register::{Key, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::task::{detach, timeout};
use memory::ContainerRecall;
use state::{ContainerMembers, ContainerPayload, RegisteredContainer, RegisteredState};

use crate::failure;
use crate::store_state::{KeptData, StoreState};

mod delete;
pub(crate) mod memory;
pub(crate) mod state;

/// Maximum number of attempts at a change that loses races.
const ATTEMPTS: usize = 100;
/// Maximum time after which a client should retry while a container is being deleted.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time that a read waits for the register if it has an earlier response.
const PATIENCE_WITH_ANSWER: Duration = Duration::from_millis(300);
/// Maximum time that a read waits for the register without an earlier response. Late writes in a deleted container then count as
/// blobs, so the time is longer.
const PATIENCE_WITHOUT: Duration = Duration::from_secs(2);
/// Key prefix of containers.
pub(crate) const KEYS: &str = "c/";

/// Returns the key of a container's record.
fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

/// The state of the container found by a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundContainer {
    /// The container doesn't exist.
    Absent(ContainerMembers),
    /// The container has blobs, but no record in the register.
    Unknown(ContainerMembers),
    /// The register contains the container.
    Known(RegisteredContainer),
}

impl FoundContainer {
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
    ) -> Result<RegisteredState, StoreError> {
        let record = self.container_record(container).await?;
        RegisteredState::of(&record, self.driver.now())
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
            RegisteredState::of(&record, self.driver.now())?,
        );
        Ok(record)
    }

    /// Returns the state of a container for a write, from memory if it was there a moment ago.
    pub(crate) async fn container_for_write(
        &self,
        container: &ContainerName,
    ) -> Result<RegisteredState, StoreError> {
        let now = self.driver.clock().now();
        if let Some(home) = self.member_cache.home(container, now) {
            return Ok(RegisteredState::Known(home));
        }
        self.registered(container).await
    }

    /// Returns `true` if a container in this state exists.
    pub(crate) async fn exists(
        &self,
        container: &ContainerName,
        registered: RegisteredState,
    ) -> Result<bool, StoreError> {
        match registered {
            RegisteredState::Known(_) | RegisteredState::Closing(..) => Ok(true),
            RegisteredState::Deleting(_) => Ok(false),
            RegisteredState::Gone(_) => self.has_blobs(container, registered.members()).await,
        }
    }

    /// Looks up the container of a write. Only a [`Known`](FoundContainer::Known) one may come from memory, so be a moment old; its
    /// deletion hasn't ended yet.
    ///
    /// # Errors
    /// Same as [`StoreState::found`].
    pub(crate) async fn find_for_write(
        &self,
        container: &ContainerName,
    ) -> Result<FoundContainer, StoreError> {
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
        registered: RegisteredState,
    ) -> Result<FoundContainer, StoreError> {
        match registered {
            RegisteredState::Known(home) => Ok(FoundContainer::Known(home)),
            RegisteredState::Closing(_, until) | RegisteredState::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            RegisteredState::Gone(_) => {
                let members = registered.members();
                let exists = self.has_blobs(container, members).await?;
                Ok(if exists {
                    FoundContainer::Unknown(members)
                } else {
                    FoundContainer::Absent(members)
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
    ) -> Result<RegisteredContainer, StoreError> {
        let registered = self.registered(container).await?;
        let found = self.found(container, registered).await?;
        self.enter(container, found, missing, None).await
    }

    /// Admits a write to the container found under its blob's permit. `expected` is the incarnation to which the write
    /// is bound, if any.
    pub(crate) async fn enter(
        &self,
        container: &ContainerName,
        found: FoundContainer,
        missing: MissingContainer,
        expected: Option<Revision>,
    ) -> Result<RegisteredContainer, StoreError> {
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
            FoundContainer::Known(home) => return Ok(home),
            FoundContainer::Absent(_) if missing == MissingContainer::Refuse => {
                return Err(StoreErrorKind::ContainerNotFound.into());
            }
            // Parts that were sent before the eviction have the earlier incarnation.
            FoundContainer::Absent(_) => expected.is_some(),
            FoundContainer::Unknown(_) => true,
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
            Ok(FoundContainer::Absent(_)) => StoreErrorKind::ContainerNotFound.into(),
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
            ContainerRecall::Recent(members) => return Ok(members),
            ContainerRecall::Paused(known) => {
                let why = "the register didn't respond a moment ago";
                return without_register(
                    container,
                    known,
                    StoreError::new(StoreErrorKind::Unavailable, why),
                );
            }
            ContainerRecall::Old(known) => known,
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
    ) -> Result<RegisteredContainer, StoreError> {
        let (record, _) = self
            .record_container(container, adopts, &BlobHeaders::default())
            .await?;
        match RegisteredState::of(&record, self.driver.now())? {
            RegisteredState::Known(home) => Ok(home),
            RegisteredState::Closing(_, until) | RegisteredState::Deleting(until) => {
                Err(self.deletion_in_progress(container, until))
            }
            RegisteredState::Gone(_) => Err(StoreErrorKind::Unavailable.into()),
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
            let RegisteredState::Gone(since) = RegisteredState::of(&record, now)? else {
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
        if let RegisteredState::Deleting(until) = registered {
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
        let registered = RegisteredState::of(&record, self.driver.now())?;
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
            let registered = RegisteredState::of(&record, now)?;
            if let RegisteredState::Closing(_, until) = registered {
                return Err(self.deletion_in_progress(container, until));
            }
            let (RegisteredState::Known(_), Some(version)) =
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
                Outcome::Refused(Refusal::Stale) => {}
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

/// Listing containers: top-level folders, and empty containers in the register.
impl StoreState {
    pub(crate) async fn containers(
        &self,
        query: &ListQuery,
    ) -> Result<Page<ContainerEntry>, StoreError> {
        let query = &self.bounded(query);
        let mut found = self.remembered(query).await?;
        let prefix = Some(&self.backing.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = match self.backing.objects.list_with_delimiter(prefix).await {
            Ok(listed) => listed.common_prefixes,
            Err(error) if failure::is_absence(&error) => Vec::new(),
            Err(error) => return Err(failure::of_read(error)),
        };
        let mut names: Vec<_> = listed
            .iter()
            .filter_map(|folder| ContainerName::new(folder.filename()?).ok())
            .filter(|name| is_asked_for(query, name.as_str()))
            .collect();
        names.sort();
        // One more than the page shows that others follow.
        let wanted = query.limit.saturating_add(1);
        for name in names {
            while found.len() > wanted {
                found.pop_last();
            }
            let last = found.last_key_value().map(|(last, _)| last);
            if found.len() == wanted && last < Some(&name) {
                break;
            }
            if found.contains_key(&name) {
                continue;
            }
            let exists = match self.container(&name).await {
                Err(error) if *error.kind() == StoreErrorKind::Unreadable => true,
                container => container?.is_some(),
            };
            if exists {
                found.insert(name, None);
            }
        }
        let more = found.len() > query.limit;
        let entry = |(name, info): (_, Option<_>)| ContainerEntry {
            name,
            info: info.unwrap_or_else(unknown),
        };
        let items: Vec<_> = found.into_iter().take(query.limit).map(entry).collect();
        let next = items
            .last()
            .filter(|_| more)
            .map(|last| last.name.as_str().to_owned());
        Ok(Page { items, next })
    }

    /// Returns the first containers in the register, one more than requested.
    async fn remembered(
        &self,
        query: &ListQuery,
    ) -> Result<BTreeMap<ContainerName, Option<ContainerInfo>>, StoreError> {
        let prefix = format!("{KEYS}{}", query.prefix);
        let mut after = query.after.as_ref().map(|after| format!("{KEYS}{after}"));
        let mut found = BTreeMap::new();
        while found.len() <= query.limit {
            let scan = Scan {
                prefix: &prefix,
                after: after.as_deref(),
                limit: query.limit.saturating_add(1),
            };
            let page = self
                .driver
                .register()
                .scan(&scan)
                .await
                .map_err(of_register)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.as_str().to_owned());
            for (key, record) in &page {
                let name = key
                    .as_str()
                    .strip_prefix(KEYS)
                    .and_then(|name| ContainerName::new(name).ok());
                let now = self.driver.now();
                // A container with an unreadable record refuses writes, and its blobs are there: it is listed.
                if let (Some(name), Some(version)) = (name, record.state(now).version())
                    && RegisteredState::of(record, now)
                        .map_or(true, |registered| registered.exists())
                {
                    found.insert(name, info(record, version, now).ok());
                }
            }
        }
        Ok(found)
    }
}

/// Returns `true` if a name is in the requested part of the listing.
pub(crate) fn is_asked_for(query: &ListQuery, name: &str) -> bool {
    name.starts_with(&query.prefix)
        && query
            .after
            .as_ref()
            .is_none_or(|after| name > after.as_str())
}
