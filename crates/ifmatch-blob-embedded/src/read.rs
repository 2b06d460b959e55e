//! Opening a blob: the record and its body, both of one version.

use std::sync::Arc;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision, Version};

use super::Inner;
use super::decoded::Body;
use super::key;
use super::payload::{Payload, Place};
use super::source::{self, Memory};
use super::swap::payload_of;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::records::of_driver;
use ifmatch_blob::store::{BlobInfo, Cached, Extent, Opened, Reading, Source, StoreError, StoreErrorKind};

/// Maximum number of attempts to open a blob that is being replaced.
const ATTEMPTS: usize = 32;

impl Inner {
    /// Returns the current version of a blob, if its records are in memory.
    pub(super) fn cached(&self, path: &BlobPath) -> Option<Cached> {
        let key = key::of_container(&path.container).ok()?;
        let container = self.decoded.container(&key, self.driver.revision_at_once(&key)?)?;
        let key = key::below(&container.blobs, &path.name).ok()?;
        let blob = self.decoded.blob(&key, self.driver.revision_at_once(&key)?)?;
        let content = match &blob.body {
            Body::Inline(bytes) => Some(bytes.clone()),
            Body::File(name) => self.small_bodies.get(name),
        };
        Some(Cached { info: Arc::clone(&blob.info), content })
    }

    pub(super) async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        let Some(incarnation) = self.find(&blob.container).await? else { return Ok(None) };
        let key = key::of_blob(&blob.container, incarnation, &blob.name)?;
        let mut missing = Revision::NONE;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let Some(version) = record.state(now).version() else { return Ok(None) };
            let payload = payload_of(version)?;
            let Some(source) = self.source(&payload, reading).await? else {
                // A file is removed after its record was replaced. If the record is unchanged, the file was lost.
                if version.generation() == missing {
                    return Err(StoreError::new(StoreErrorKind::Unreadable, "the body's file is missing"));
                }
                missing = version.generation();
                continue;
            };
            let info = info(&record, version, now)?;
            if record.settled(now).is_some() {
                self.decoded.keep_blob(key, record.revision(), &payload, &info);
            }
            return Ok(Some(Opened { info, source }));
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "the blob is replaced faster than it can be opened"))
    }

    /// Returns the bytes, or `None` if the file is gone.
    async fn source(&self, payload: &Payload, reading: Reading) -> Result<Option<Box<dyn Source>>, StoreError> {
        if reading.extent == Extent::None {
            return Ok(Some(Box::new(Memory::empty())));
        }
        let name = match (&payload.place, payload.file()) {
            (Place::Inline(bytes), _) => return Ok(Some(Box::new(Memory::from(bytes.clone())))),
            (_, Some(name)) => name,
            (_, None) => return Ok(None),
        };
        if let Some(bytes) = self.small_bodies.get(&name) {
            return Ok(Some(Box::new(Memory::from(bytes))));
        }
        let small_bodies = self.small_bodies.clone();
        source::open(self.folder.body(&name), payload.length, move |bytes| small_bodies.keep(name, bytes)).await
    }
}

/// Returns the properties of a blob from its record, read at `now`.
pub(super) fn info(record: &Record, version: &Version, now: Timestamp) -> Result<BlobInfo, StoreError> {
    let payload = payload_of(version)?;
    Ok(BlobInfo {
        tag: version.tags().first().cloned(),
        last_modified: version.last_modified(),
        length: payload.length,
        hash: Some(payload.hash),
        generation: Some(version.generation()),
        created: Some(payload.created(version).timestamp()),
        headers: payload.headers,
        lease: record.seen_lease(now),
    })
}
