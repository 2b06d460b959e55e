//! The records of blobs, apart from their writes: removal, and the writes of an earlier process.
//!
//! # Removal
//!
//! Records that only repeat the object store's state are removed. Otherwise the register would grow with every name ever written,
//! such as a staged block.
//!
//! # Writes of an earlier process
//!
//! It was killed, and its permits last for up to a minute. A process that has its register for itself knows that the earlier one has
//! ended. Its last request may still be on the way to the store, for as long as any request that lost its response: [`GRACE`]. So its
//! permits end that long after the start.
//!
//! ## Interleavings
//!
//! - **The late request carries a condition.** After [`GRACE`], another writer succeeds. The request then finds another version, or one
//!   where it required none, and the store refuses it, however late it arrives. What remains is what remains of any lost response: a
//!   version that returns (docs/stores.md).
//! - **The late request carries none**: a deletion, the end of an upload in parts, or any write to a store that ignores conditions. It
//!   would replace or delete what was acknowledged since. Such permits keep their minute, as do writes under a lease.
//! - **There is no late request**: the store is a folder, into which the earlier process wrote itself. Its writes ended with it, whatever
//!   covers them, so all its permits end. A network file system may carry out one more of its operations: [`GRACE`] is for that.
//! - **Two processes with one register.** Each would end the permits of the other, so only a register that one process locks
//!   qualifies. A copy of its folder doesn't: the mark in the store tells its owner.
//! - **A write of this process** that began before its record was looked at. Its permit is younger than this process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{is_past_retention, next_page, of_driver, of_register};
use ifmatch_blob::store::StoreError;
use ifmatch_core::command::{Command, Doubt};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Permit, Record, Revision};
use ifmatch_register::{Key, Swap};
use object_store::path::Path;

use crate::attributes::StoredVersion;
use crate::container_state::{ContainerMembers, ContainerState};
use crate::list::name_of;
use crate::permit::{self, GRACE, GuardedChange, GuardedOutcome, LateWriteGuard};
use crate::store_state::StoreState;
use crate::{container, failure};

impl StoreState {
    /// Removes the records of blobs without leases and of deleted containers, and returns the number removed. A record
    /// changed by another writer meanwhile stays.
    ///
    /// Also resumes interrupted deletions.
    pub(super) async fn forget_idle(&self) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        let mut after: Option<Key> = None;
        while let Some(records) = self.records(permit::KEYS, &mut after).await? {
            for (key, record) in records {
                let now = self.driver.now();
                if is_past_retention(&record, now)
                    && record.is_idle(now)
                    && record.lease().is_none()
                {
                    forgotten += self.forget(&key, &record).await?;
                }
            }
        }
        after = None;
        while let Some(records) = self.records(container::KEYS, &mut after).await? {
            for (key, record) in records {
                let name = key
                    .as_str()
                    .strip_prefix(container::KEYS)
                    .and_then(|name| ContainerName::new(name).ok());
                if let Some(container) = name {
                    forgotten += Box::pin(self.forget_container(&container, &key, &record)).await?;
                }
            }
        }
        Ok(forgotten)
    }

    async fn forget_container(
        &self,
        container: &ContainerName,
        key: &Key,
        record: &Record,
    ) -> Result<u64, StoreError> {
        let now = self.driver.now();
        match ContainerState::of(record, now) {
            // The records behind it are looked at all the same.
            Err(error) => {
                tracing::warn!(%container, %error, "the record of a container is unreadable");
                Ok(0)
            }
            Ok(ContainerState::Closing(_, until) | ContainerState::Deleting(until))
                if until <= now =>
            {
                self.resume_deletion(container);
                Ok(0)
            }
            Ok(gone @ ContainerState::Gone(_))
                if is_past_retention(record, now) && record.is_forgettable(now) =>
            {
                match Box::pin(self.remove_strays(container, gone.members())).await {
                    Ok(()) => self.forget(key, record).await,
                    Err(error) => {
                        tracing::warn!(%container, %error, "objects of a deleted container remain");
                        Ok(0)
                    }
                }
            }
            _ => Ok(0),
        }
    }

    /// Removes objects left by late writers in a deleted container. Without the container's record, they would count as
    /// blobs.
    async fn remove_strays(
        &self,
        container: &ContainerName,
        members: ContainerMembers,
    ) -> Result<(), StoreError> {
        if members.are_all() || !self.capability.metadata {
            return Ok(());
        }
        let folder = self.folder(container);
        let mut listed = self.backing.objects.list(Some(&folder));
        loop {
            let object = match listed.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) => return Ok(()),
                Err(error) if failure::is_absence(&error) => return Ok(()),
                Err(error) => return Err(failure::of_read(error)),
            };
            let Some(name) = name_of(&object.location, &folder) else {
                continue;
            };
            if self.stray(&object.location, members).await?.is_none() {
                continue;
            }
            let work = async {
                match self.stray(&object.location, members).await {
                    Ok(Some(stray)) => self.remove_compared(&object.location, &stray).await,
                    Ok(None) => GuardedOutcome::Refused(failure::contended()),
                    Err(error) => GuardedOutcome::Refused(error),
                }
            };
            let blob = BlobPath {
                container: container.clone(),
                name,
            };
            self.guarded(&blob, GuardedChange::DELETION, None, work)
                .await?;
        }
    }

    /// Returns the object if it is none of the container's blobs.
    async fn stray(
        &self,
        location: &Path,
        members: ContainerMembers,
    ) -> Result<Option<StoredVersion>, StoreError> {
        let found = self.look(location, ContainerMembers::ALL).await?;
        Ok(found.filter(|object| !members.contain(object)))
    }

    async fn forget(&self, key: &Key, record: &Record) -> Result<u64, StoreError> {
        let swapped = self
            .driver
            .register()
            .compare_and_swap(key, record.revision(), None)
            .await;
        Ok(u64::from(swapped.map_err(of_register)? == Swap::Done))
    }

    /// Returns the next records with this key prefix, or `None` at the end.
    pub(super) async fn records(
        &self,
        prefix: &str,
        after: &mut Option<Key>,
    ) -> Result<Option<Vec<(Key, Record)>>, StoreError> {
        next_page(self.driver.register(), prefix, after)
            .await
            .map_err(of_register)
    }
}

impl StoreState {
    /// Lets the permits of an earlier process end [`GRACE`] after `started`, the start of this one. Returns their number.
    pub(super) async fn settle_earlier_writes(
        self: Arc<Self>,
        started: Timestamp,
    ) -> Result<u64, StoreError> {
        let (mut settled, mut after) = (0, None);
        while let Some(records) = self.records(permit::KEYS, &mut after).await? {
            for (key, record) in records {
                let now = self.driver.now();
                let Some(permit) = self.earlier(&record, started, now) else {
                    continue;
                };
                let left: Duration = now.until(started.saturating_add(GRACE));
                let doubt = Command::Doubt(Doubt::new(permit.token, left));
                // Refused if the permit has ended since.
                self.driver.apply(&key, &doubt).await.map_err(of_driver)?;
                settled += 1;
            }
        }
        Ok(settled)
    }

    /// Returns the permit of a record if a process before `started` left it behind, and its write can't replace a later version.
    fn earlier(&self, record: &Record, started: Timestamp, now: Timestamp) -> Option<Permit> {
        let is_earlier = |permit: &Permit| permit.token.revision < Revision::NONE.next(started);
        let is_harmless =
            |permit: &Permit| self.backing.is_local || permit.ttl == LateWriteGuard::Store.ttl();
        record
            .permit(now)
            .filter(|permit| is_earlier(permit) && is_harmless(permit))
    }
}
