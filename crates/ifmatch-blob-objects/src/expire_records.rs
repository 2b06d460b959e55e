//! Removal of records that only repeat the object store's state. Otherwise the register would grow with every name
//! ever written, including those of blocks.

use futures_util::TryStreamExt;
use http::Method;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, Swap};
use object_store::path::Path;

use super::attributes::Current;
use super::container;
use super::container::state::{Members, Registered};
use super::failure;
use super::list::name_of;
use super::permit::{self, Cover, Ending};
use super::shared::Shared;
use super::write::contended;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{is_past_retention, next_page, of_register};
use ifmatch_blob::store::StoreError;

impl Shared {
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
                if is_past_retention(&record, now) && record.is_idle(now) && record.lease().is_none() {
                    forgotten += self.forget(&key, &record).await?;
                }
            }
        }
        after = None;
        while let Some(records) = self.records(container::KEYS, &mut after).await? {
            for (key, record) in records {
                let name = key.as_str().strip_prefix(container::KEYS).and_then(|name| ContainerName::new(name).ok());
                if let Some(container) = name {
                    forgotten += self.forget_container(&container, &key, &record).await?;
                }
            }
        }
        Ok(forgotten)
    }

    async fn forget_container(&self, container: &ContainerName, key: &Key, record: &Record) -> Result<u64, StoreError> {
        let now = self.driver.now();
        match Registered::of(record, now) {
            // The records behind it are looked at all the same.
            Err(error) => {
                tracing::warn!(%container, %error, "the record of a container is unreadable");
                Ok(0)
            }
            Ok(Registered::Closing(_, until) | Registered::Deleting(until)) if until <= now => {
                self.resume_deletion(container);
                Ok(0)
            }
            Ok(gone @ Registered::Gone(_)) if is_past_retention(record, now) && record.is_forgettable(now) => {
                match self.remove_strays(container, gone.members()).await {
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
    async fn remove_strays(&self, container: &ContainerName, members: Members) -> Result<(), StoreError> {
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
            let Some(name) = name_of(&object.location, &folder) else { continue };
            if self.stray(&object.location, members).await?.is_none() {
                continue;
            }
            let work = async {
                match self.stray(&object.location, members).await {
                    Ok(Some(stray)) => self.remove_compared(&object.location, &stray).await,
                    Ok(None) => Ending::Refused(contended()),
                    Err(error) => Ending::Refused(error),
                }
            };
            let blob = BlobPath { container: container.clone(), name };
            self.guarded(&blob, &Method::DELETE, LeaseUse::Read(None), Cover::Permit, None, work).await?;
        }
    }

    /// Returns the object if it is none of the container's blobs.
    async fn stray(&self, location: &Path, members: Members) -> Result<Option<Current>, StoreError> {
        let found = self.look(location, Members::ALL).await?;
        Ok(found.filter(|object| !members.contain(object)))
    }

    async fn forget(&self, key: &Key, record: &Record) -> Result<u64, StoreError> {
        let swapped = self.driver.register().compare_and_swap(key, record.revision(), None).await;
        Ok(u64::from(swapped.map_err(of_register)? == Swap::Done))
    }

    /// Returns the next records with this key prefix, or `None` at the end.
    pub(super) async fn records(
        &self,
        prefix: &str,
        after: &mut Option<Key>,
    ) -> Result<Option<Vec<(Key, Record)>>, StoreError> {
        next_page(self.driver.register(), prefix, after).await.map_err(of_register)
    }
}
