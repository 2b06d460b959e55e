//! Containers: one record each. An incarnation distinguishes containers of the same name.
//!
//! # Writes, against a deletion on the condition that the container is empty
//!
//! A write looks up its container, and then swaps the record of its blob. In between, a deletion could find the container empty, and
//! delete it with the blob. So the deletion waits for the writes that have entered the container, and later writes wait for the
//! deletion. If only this process writes to the store, a lock in memory is enough, and a crash leaves nothing behind.
//!
//! Otherwise, the deletion marks the container before it looks for blobs, and deletes the container only if it still has this mark. A
//! write looks at the container again after its swap, and removes any mark. If the container is gone, the write fails. A mark that a crash
//! leaves is removed by the next write.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use http::Method;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::records::{nonce, refused};
use ifmatch_blob::store::{
    ContainerInfo, Delete, ListQuery, SetHeaders, StoreError, StoreErrorKind,
};
use ifmatch_core::command::{Content, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseUse, SeenLease};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Version};
use ifmatch_register::{Applied, Key};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::background::in_the_background;
use super::decoded::Container;
use super::payload::Payload;
use super::swap::{Edit, WriteRequest, encoded, kept, payload_of};
use super::{Inner, key};

impl Inner {
    /// Looks up a container other than an internal one. Returns `None` if there is no such container.
    pub(super) async fn look_up(
        &self,
        container: &ContainerName,
    ) -> Result<Option<Arc<Container>>, StoreError> {
        let key = key::of_container(container)?;
        let current = self.driver.revision_at_once(&key);
        if let Some(container) = current.and_then(|current| self.decoded.container(&key, current)) {
            return Ok(Some(container));
        }
        let record = self.look(&key).await?;
        // A container's record never has a write in flight, so it says the same at any time, except for its lease.
        let now = self.driver.now();
        let Some(version) = record.state(now).version() else {
            return Ok(None);
        };
        let incarnation = payload_of(version)?.created(version);
        let (blobs, info) = (
            key::of_blobs_in(container, incarnation),
            container_info(&record, version, now)?,
        );
        let container = Arc::new(Container {
            incarnation,
            blobs,
            info,
        });
        self.decoded
            .keep_container(key, record.revision(), &container);
        Ok(Some(container))
    }

    /// Returns the incarnation of a container, or `None` if there is no such container.
    pub(super) async fn find(
        &self,
        container: &ContainerName,
    ) -> Result<Option<Revision>, StoreError> {
        if container.is_internal() {
            return Ok(Some(key::INTERNAL));
        }
        Ok(self
            .look_up(container)
            .await?
            .map(|container| container.incarnation))
    }

    /// Returns the incarnation of a container that must exist.
    pub(super) async fn incarnation(
        &self,
        container: &ContainerName,
    ) -> Result<Revision, StoreError> {
        self.find(container)
            .await?
            .ok_or_else(|| StoreErrorKind::ContainerNotFound.into())
    }

    /// Returns the incarnation of a container, creating it if necessary.
    pub(super) async fn ensure(&self, container: &ContainerName) -> Result<Revision, StoreError> {
        let key = key::of_container(container)?;
        let applied = self.create(&key, BlobHeaders::default()).await?;
        match applied.outcome {
            // A failed precondition means that another writer was faster.
            Outcome::Written(_) | Outcome::Refused(Refusal::PreconditionFailed { .. }) => {
                incarnation_of(&applied.after, self)?
                    .ok_or_else(|| StoreErrorKind::ContainerNotFound.into())
            }
            outcome => Err(refused(outcome, self.driver.now())),
        }
    }

    pub(super) async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.bodies.check_space()?;
        let key = key::of_container(container)?;
        let applied = self.create(&key, headers).await?;
        match applied.outcome {
            Outcome::Written(_) => self
                .info_of(&applied.after)?
                .ok_or_else(|| StoreErrorKind::ContainerNotFound.into()),
            Outcome::Refused(Refusal::PreconditionFailed { .. }) => {
                Err(StoreErrorKind::ContainerExists.into())
            }
            outcome => Err(refused(outcome, self.driver.now())),
        }
    }

    async fn create(&self, key: &Key, headers: BlobHeaders) -> Result<Applied, StoreError> {
        let preconditions = Preconditions::absent();
        // If the container exists, its lease makes no difference.
        let lease = LeaseUse::Read(None);
        let request = WriteRequest::new(Method::PUT, preconditions, lease)?;
        let content = encoded(&Payload::of_container(headers))?;
        self.swap(key, request, content).await
    }

    pub(super) async fn container(
        &self,
        container: &ContainerName,
    ) -> Result<Option<ContainerInfo>, StoreError> {
        let Some(found) = self.look_up(container).await? else {
            return Ok(None);
        };
        let now = self.driver.now();
        // The record may have been decoded earlier.
        let lease = found.info.lease.map(|seen| SeenLease { at: now, ..seen });
        Ok(Some(ContainerInfo {
            lease,
            ..found.info.clone()
        }))
    }

    pub(super) async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        // A container's lease protects it from deletion only.
        let request = set.request.map(|key| key.request(None));
        let lease = LeaseUse::Read(set.lease.id());
        let request = WriteRequest {
            request,
            ..WriteRequest::new(Method::PUT, set.preconditions, lease)?
        };
        let key = key::of_container(container)?;
        let set = self.set_fields(&key, request, set.change).await;
        let (_, record) = set.map_err(StoreError::of_container)?;
        self.info_of(&record)?
            .ok_or_else(|| StoreErrorKind::ContainerNotFound.into())
    }

    async fn delete_container(
        self: Arc<Self>,
        container: &ContainerName,
        edit: Edit,
    ) -> Result<(), StoreError> {
        let key = key::of_container(container)?;
        let applied = self.change(&key, edit).await?;
        match applied.outcome {
            Outcome::Written(_) => {}
            Outcome::Replayed(_) => return Ok(()),
            outcome => return Err(refused(outcome, self.driver.now()).of_container()),
        }
        if let Ok(Some(incarnation)) = incarnation_of(&applied.before, &self) {
            let container = container.clone();
            tokio::spawn(async move { self.collect_container(&container, incarnation).await });
        }
        Ok(())
    }

    async fn has_blobs(&self, container: &ContainerName) -> Result<bool, StoreError> {
        Ok(self
            .list(container, &ListQuery::first(1))
            .await?
            .is_some_and(|page| !page.items.is_empty()))
    }

    /// Deletes a container that has no blobs, although other processes may write to it.
    async fn delete_marked(
        self: Arc<Self>,
        container: &ContainerName,
        request: WriteRequest,
    ) -> Result<(), StoreError> {
        for _ in 0..MARKS {
            let mark = FieldText::new(&nonce()?.to_string())
                .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
            self.mark(container, Some(mark.clone())).await?;
            if self.has_blobs(container).await? {
                self.mark(container, None).await?;
                return Err(StoreErrorKind::ContainerNotEmpty.into());
            }
            // A container that didn't exist at the mark may have been created since, and have blobs.
            let absent =
                move |version: Option<&Version>| match version.map(payload_of).transpose()? {
                    Some(payload) if payload.headers.emptying.as_ref() != Some(&mark) => {
                        Err(StoreErrorKind::ContainerNotEmpty.into())
                    }
                    // Without a container, the retry of a deletion gets its response again.
                    _ => Ok(Content::Absent),
                };
            let edit = Edit::Write(request.clone(), Box::new(absent));
            match Arc::clone(&self).delete_container(container, edit).await {
                // A write, or another deletion, has removed the mark.
                Err(error) if *error.kind() == StoreErrorKind::ContainerNotEmpty => {}
                deleted => return deleted,
            }
        }
        Err(StoreErrorKind::ContainerNotEmpty.into())
    }

    /// Sets or clears a container's mark. Returns the container's incarnation, or `None` if the container doesn't exist.
    async fn mark(
        &self,
        container: &ContainerName,
        mark: Option<FieldText>,
    ) -> Result<Option<Revision>, StoreError> {
        let request = WriteRequest::new(Method::PUT, Preconditions::NONE, LeaseUse::Read(None))?;
        let content = move |version: Option<&Version>| match version {
            Some(version) => {
                let mut payload = payload_of(version)?;
                payload.headers.emptying.clone_from(&mark);
                kept(&payload)
            }
            None => Err(StoreErrorKind::ContainerNotFound.into()),
        };
        match self
            .change(
                &key::of_container(container)?,
                Edit::Write(request, Box::new(content)),
            )
            .await
        {
            Ok(applied) => incarnation_of(&applied.after, self),
            Err(error) if *error.kind() == StoreErrorKind::ContainerNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if changes of this container's blobs are confirmed.
    pub(super) fn confirms(&self, container: &ContainerName) -> bool {
        self.gates.are_shared && !container.is_internal()
    }

    /// Confirms that a blob was written to a container that exists. Keeps away the deletion of a container that had no blobs.
    pub(super) async fn confirm(
        &self,
        container: &ContainerName,
        incarnation: Revision,
    ) -> Result<(), StoreError> {
        if !self.confirms(container) {
            return Ok(());
        }
        let unknown = |error: StoreError| StoreError::new(StoreErrorKind::OutcomeUnknown, error);
        let found = self.look_up(container).await.map_err(unknown)?;
        let found = match found {
            Some(found) if found.info.headers.emptying.is_some() => {
                self.mark(container, None).await.map_err(unknown)?
            }
            found => found.map(|found| found.incarnation),
        };
        if found == Some(incarnation) {
            Ok(())
        } else {
            Err(StoreErrorKind::ContainerNotFound.into())
        }
    }

    fn info_of(&self, record: &Record) -> Result<Option<ContainerInfo>, StoreError> {
        let now = self.driver.now();
        record
            .state(now)
            .version()
            .map(|version| container_info(record, version, now))
            .transpose()
    }
}

/// Deletes a container. Its blobs are unreachable after one swap and collected in the background.
pub(super) async fn delete(
    inner: &Arc<Inner>,
    container: &ContainerName,
    delete: Delete,
) -> Result<(), StoreError> {
    let request = WriteRequest::deletion(delete)?;
    let (inner, container) = (Arc::clone(inner), container.clone());
    in_the_background(async move {
        Arc::clone(&inner)
            .delete_container(&container, Edit::absent(request))
            .await
    })
    .await
}

/// Deletes a container that has no blobs, while no write to it is between its look at the container and its swap.
pub(super) async fn delete_empty(
    inner: &Arc<Inner>,
    container: &ContainerName,
    delete: Delete,
) -> Result<(), StoreError> {
    let request = WriteRequest::deletion(delete)?;
    let (inner, container) = (Arc::clone(inner), container.clone());
    in_the_background(async move {
        let _closed = inner.gates.close(&container).await;
        if inner.gates.are_shared {
            return Arc::clone(&inner).delete_marked(&container, request).await;
        }
        if inner.has_blobs(&container).await? {
            return Err(StoreErrorKind::ContainerNotEmpty.into());
        }
        Arc::clone(&inner)
            .delete_container(&container, Edit::absent(request))
            .await
    })
    .await
}

/// Returns the properties of a container from its record, read at `now`.
pub(super) fn container_info(
    record: &Record,
    version: &Version,
    now: Timestamp,
) -> Result<ContainerInfo, StoreError> {
    let payload = payload_of(version)?;
    Ok(ContainerInfo {
        tag: version.tags().first().cloned(),
        last_modified: Some(version.last_modified()),
        created: Some(payload.created(version).timestamp()),
        headers: payload.headers,
        lease: record.seen_lease(now),
    })
}

/// Returns the incarnation in a container's record, or `None` if there is no such container.
fn incarnation_of(record: &Record, inner: &Inner) -> Result<Option<Revision>, StoreError> {
    let version = record.state(inner.driver.now()).version();
    version
        .map(|version| Ok(payload_of(version)?.created(version)))
        .transpose()
}

/// Maximum number of attempts to delete an empty container.
const MARKS: usize = 8;
/// Number of locks. A write also waits for the deletion of another container with the same lock.
const LOCKS: usize = 64;

/// A lock for each container. Some containers share one.
pub(super) struct Gates {
    locks: [RwLock<()>; LOCKS],
    /// `true` if other processes write to the containers, too.
    are_shared: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            locks: [const { RwLock::const_new(()) }; LOCKS],
            are_shared: false,
        }
    }
}

impl Gates {
    /// Returns the gates of containers that other processes write to, too.
    pub(super) fn shared() -> Self {
        Self {
            are_shared: true,
            ..Self::default()
        }
    }

    /// Lets a write enter the container, until the result is dropped.
    pub(super) async fn enter(&self, container: &ContainerName) -> RwLockReadGuard<'_, ()> {
        self.of(container).read().await
    }

    /// Waits until no write is in the container, and keeps others out until the result is dropped.
    pub(super) async fn close(&self, container: &ContainerName) -> RwLockWriteGuard<'_, ()> {
        self.of(container).write().await
    }

    fn of(&self, container: &ContainerName) -> &RwLock<()> {
        let mut hasher = DefaultHasher::new();
        container.hash(&mut hasher);
        &self.locks[usize::try_from(hasher.finish()).unwrap_or_default() % LOCKS]
    }
}
