//! Copies of a whole store: from a folder into a bucket, and back. Tags, dates, leases, fencing tokens and snapshots stay as they are,
//! since records are copied as they are, and bodies keep their names.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use ifmatch_blob::records::next_page;
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::digest::Hasher;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Swap};

use super::bodies::differs;
use super::error::OpenError;
use super::payload::Payload;
use super::verify::{Progress, Total};
use super::{IndexedStore, key};

/// Number of records that are copied at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of attempts to copy a blob that is being replaced.
const ATTEMPTS: usize = 32;

impl IndexedStore {
    /// Copies all containers and blobs into an empty store that nothing else uses yet.
    ///
    /// While this store is written to, each blob is copied as it is at one moment, and not all at the same one. After an error, the target
    /// is incomplete: empty it before the next attempt.
    ///
    /// # Errors
    /// Fails if a store does, if a body is damaged, or if the target isn't empty.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ifmatch_blob_indexed::{IndexedStore, Objects, Progress};
    /// use ifmatch_register::{Driver, MemoryRegister};
    /// use object_store::memory::InMemory;
    /// use object_store::path::Path;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = IndexedStore::open(folder.path()).await?;
    /// let objects = Objects::new(Arc::new(InMemory::new()), Path::default());
    /// let bucket = IndexedStore::in_bucket(objects, Driver::new(MemoryRegister::unbounded()))?;
    /// assert_eq!(store.copy_into(&bucket, &Progress::default()).await?.bodies, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn copy_into(&self, target: &Self, progress: &Progress) -> Result<Total, OpenError> {
        let mut total = Total::default();
        // Containers last, so no blob of an incomplete copy can be read.
        for prefix in [key::BLOBS, key::CONTAINERS] {
            let mut after = None;
            if next_page(target.index(), prefix, &mut after)
                .await
                .map_err(OpenError::register)?
                .is_some()
            {
                return Err(OpenError::not_empty());
            }
            let mut after = None;
            while let Some(records) = next_page(self.index(), prefix, &mut after)
                .await
                .map_err(OpenError::register)?
            {
                let copy = |(key, record)| self.copy_record(target, key, record, progress);
                let mut copies = stream::iter(records).map(copy).buffer_unordered(AT_ONCE);
                while let Some(length) = copies.try_next().await? {
                    let Some(length) = length else { continue };
                    total = Total {
                        bodies: total.bodies + 1,
                        bytes: total.bytes + length,
                    };
                }
            }
        }
        Ok(total)
    }

    /// Copies a record, after its body. Returns the length of the body, if it is a blob's.
    async fn copy_record(
        &self,
        target: &Self,
        key: Key,
        record: Record,
        progress: &Progress,
    ) -> Result<Option<u64>, OpenError> {
        let is_blob = key.as_str().starts_with(key::BLOBS);
        let (mut record, mut damage) = (Some(record), None);
        for _ in 0..ATTEMPTS {
            // The blob was deleted in the meantime, and its record forgotten.
            let Some(found) = record else {
                return Ok(None);
            };
            // If the record is unchanged, the body isn't replaced but lost.
            if let Some((revision, error)) = damage.take()
                && revision == found.revision()
            {
                return Err(OpenError::uncopied(key.as_str(), error));
            }
            let payload = found
                .state(self.inner.driver.now())
                .version()
                .map(Payload::of)
                .transpose();
            let payload = payload.map_err(|error| OpenError::record(key.as_str(), error))?;
            let payload = payload.filter(|_| is_blob);
            if let Some(payload) = &payload
                && let Err(error) = self.copy_body(target, payload, progress).await
            {
                damage = Some((found.revision(), error));
                record = self.index().load(&key).await.map_err(OpenError::register)?;
                continue;
            }
            return match target
                .index()
                .compare_and_swap(&key, Revision::NONE, Some(&found))
                .await
            {
                Ok(Swap::Done) => {
                    let target = &target.inner;
                    target
                        .internal_counts
                        .found(&key, &found, target.driver.now());
                    Ok(payload.map(|payload| payload.length))
                }
                Ok(Swap::Conflict(_)) => Err(OpenError::not_empty()),
                Err(error) => Err(OpenError::register(error)),
            };
        }
        let error = damage.map_or(StoreErrorKind::Unavailable.into(), |(_, error)| error);
        Err(OpenError::uncopied(key.as_str(), error))
    }

    async fn copy_body(
        &self,
        target: &Self,
        payload: &Payload,
        progress: &Progress,
    ) -> Result<(), StoreError> {
        let Some(body) = payload.file() else {
            progress.count(payload.length);
            return Ok(());
        };
        let missing = || StoreError::new(StoreErrorKind::Unreadable, "the body is missing");
        let source = self
            .inner
            .bodies
            .open(body, payload.length, None, Box::new(drop))
            .await?;
        let mut bytes = source.ok_or_else(missing)?.read(None).await?;
        let mut copy = Arc::clone(&target.inner.bodies).begin(Some(body))?;
        let (mut hasher, mut length) = (Hasher::new(payload.hash.format()), 0);
        while let Some(frame) = bytes.frame().await {
            let Ok(chunk) = frame?.into_data() else {
                continue;
            };
            length += chunk.len() as u64;
            hasher.update(&chunk);
            copy.write(chunk.into()).await?;
        }
        if hasher.finish() != payload.hash || length != payload.length {
            return Err(differs());
        }
        copy.finish(None).await?.keep();
        progress.count(length);
        Ok(())
    }
}
