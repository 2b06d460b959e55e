//! Opening a blob: the record and its body, both of one version. And listings, from the index alone.

use std::sync::Arc;

use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::records::{of_driver, of_register};
use ifmatch_blob::store::{
    BlobEntry, BlobInfo, Cached, ContainerEntry, Extent, ListQuery, Opened, Page, Reading, Source,
    StoreError, StoreErrorKind,
};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision, Version};
use ifmatch_register::Scan;

use super::container::container_info;
use super::decoded::Body;
use super::payload::{Payload, Place};
use super::source::Memory;
use super::swap::payload_of;
use super::{Inner, key};

/// Maximum number of attempts to open a blob that is being replaced.
const ATTEMPTS: usize = 32;

impl Inner {
    /// Returns the current version of a blob, if its records are in memory.
    pub(super) fn cached(&self, path: &BlobPath) -> Option<Cached> {
        let key = key::of_container(&path.container).ok()?;
        let container = self
            .decoded
            .container(&key, self.driver.revision_at_once(&key)?)?;
        let key = key::below(&container.blobs, &path.name).ok()?;
        let blob = self
            .decoded
            .blob(&key, self.driver.revision_at_once(&key)?)?;
        let content = match &blob.body {
            Body::Inline(bytes) => Some(bytes.clone()),
            Body::File(name) => self.small_bodies.get(name, blob.info.length),
        };
        Some(Cached {
            info: Arc::clone(&blob.info),
            content,
        })
    }

    pub(super) async fn open(
        &self,
        blob: &BlobPath,
        reading: Reading,
    ) -> Result<Option<Opened>, StoreError> {
        let Some(incarnation) = self.find(&blob.container).await? else {
            return Ok(None);
        };
        let key = key::of_blob(&blob.container, incarnation, &blob.name)?;
        let mut missing = Revision::NONE;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let Some(version) = record.state(now).version() else {
                return Ok(None);
            };
            let payload = payload_of(version)?;
            let Some(source) = self.source(&payload, reading).await? else {
                // A file is removed after its record was replaced. If the record is unchanged, the file was lost.
                if version.generation() == missing {
                    return Err(StoreError::new(
                        StoreErrorKind::Unreadable,
                        "the body's file is missing",
                    ));
                }
                missing = version.generation();
                continue;
            };
            let info = info(&record, version, now)?;
            if record.settled(now).is_some() {
                self.decoded
                    .keep_blob(key, record.revision(), &payload, &info);
            }
            return Ok(Some(Opened { info, source }));
        }
        Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "the blob is replaced faster than it can be opened",
        ))
    }

    /// Returns the bytes, or `None` if the file is gone.
    async fn source(
        &self,
        payload: &Payload,
        reading: Reading,
    ) -> Result<Option<Box<dyn Source>>, StoreError> {
        if reading.extent == Extent::None {
            return Ok(Some(Box::new(Memory::empty())));
        }
        let name = match (&payload.place, payload.file()) {
            (Place::Inline(bytes), _) => return Ok(Some(Box::new(Memory::from(bytes.clone())))),
            (_, Some(name)) => name,
            (_, None) => return Ok(None),
        };
        if let Some(bytes) = self.small_bodies.get(&name, payload.length) {
            return Ok(Some(Box::new(Memory::from(bytes))));
        }
        let small_bodies = self.small_bodies.clone();
        let budget = reading.client.map(|client| self.unsent.of(client));
        let keep = Box::new(move |bytes| small_bodies.keep(name, bytes));
        self.bodies.open(name, payload.length, budget, keep).await
    }
}

/// Returns the properties of a blob from its record, read at `now`.
pub(super) fn info(
    record: &Record,
    version: &Version,
    now: Timestamp,
) -> Result<BlobInfo, StoreError> {
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

/// Maximum number of records per scan.
const STEP: usize = 1000;
/// Number of bytes after which a page ends, although more follow.
const PAGE: usize = 128 * 1024;

impl Inner {
    pub(super) async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        let Some(incarnation) = self.find(container).await? else {
            return Ok(None);
        };
        let entry = |name: &str, record: &Record, version: &Version, now: Timestamp| {
            let name = BlobName::new(name).map_err(unreadable)?;
            let entry = BlobEntry {
                name,
                info: info(record, version, now)?,
            };
            Ok((entry.size(), entry))
        };
        self.page(&key::of_blobs_in(container, incarnation), query, entry)
            .await
            .map(Some)
    }

    pub(super) async fn containers(
        &self,
        query: &ListQuery,
    ) -> Result<Page<ContainerEntry>, StoreError> {
        let entry = |name: &str, record: &Record, version: &Version, now: Timestamp| {
            let name = ContainerName::new(name).map_err(unreadable)?;
            let entry = ContainerEntry {
                name,
                info: container_info(record, version, now)?,
            };
            Ok((entry.size(), entry))
        };
        self.page(key::CONTAINERS, query, entry).await
    }

    /// Returns a page of the versions under `root`; `entry` converts each with its name below it, at a time, and returns its size.
    async fn page<T>(
        &self,
        root: &str,
        query: &ListQuery,
        entry: impl Fn(&str, &Record, &Version, Timestamp) -> Result<(usize, T), StoreError>,
    ) -> Result<Page<T>, StoreError> {
        let prefix = format!("{root}{}", query.prefix);
        let mut after = query.after.as_ref().map(|after| format!("{root}{after}"));
        let mut page = Page {
            items: Vec::new(),
            next: None,
        };
        let (mut last, mut bytes) = (String::new(), 0);
        loop {
            let limit = (query.limit - page.items.len()).saturating_add(1).min(STEP);
            let scan = Scan {
                prefix: &prefix,
                after: after.as_deref(),
                limit,
            };
            let records = self
                .driver
                .register()
                .scan(&scan)
                .await
                .map_err(of_register)?;
            let Some((end, _)) = records.last() else {
                return Ok(page);
            };
            after = Some(end.as_str().to_owned());
            for (key, record) in &records {
                let now = self.driver.now();
                let Some(version) = record.state(now).version() else {
                    continue;
                };
                if page.items.len() >= query.limit || bytes >= PAGE {
                    page.next = Some(last);
                    return Ok(page);
                }
                let name = key.as_str().strip_prefix(root).unwrap_or_default();
                let (size, item) = entry(name, record, version, now)?;
                bytes += size;
                page.items.push(item);
                name.clone_into(&mut last);
            }
        }
    }
}

fn unreadable(error: ifmatch_blob::name::InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}
