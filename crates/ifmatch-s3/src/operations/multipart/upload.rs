//! An upload in parts, and where it is kept: a blob for the upload, and one for each part, in internal containers. Old ones are
//! collected.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, Full};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, InvalidName};
use ifmatch_blob::store::{
    BlobEntry, BlobInfo, BlobStore, ContainerInfo, Delete, ListQuery, Put, Reading, StoreError,
    StoreErrorKind, Upload as Body,
};
use ifmatch_blob::sweep::{IsUsed, remove_old};
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::bodies::checksum::ChecksumPlan;
use crate::convert::ObjectFields;
use crate::error;

/// Number of entries read from the store at a time.
const STEP: usize = 1000;
/// Maximum number of parts removed concurrently.
const PARALLEL: usize = 16;

/// The container of all uploads.
pub(super) static UPLOADS: LazyLock<ContainerName> = LazyLock::new(|| internal("uploads"));
/// The container of all parts.
pub(super) static PARTS: LazyLock<ContainerName> = LazyLock::new(|| internal("parts"));

/// An upload in parts. Every change is a write on the condition of the version before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) fields: ObjectFields,
    #[serde(default)]
    pub(crate) checksum: ChecksumPlan,
    /// When the upload was created, in seconds since 1970.
    pub(crate) initiated: i64,
    pub(crate) state: UploadState,
}

/// The state of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UploadState {
    /// Takes parts.
    Open,
    /// A request that completes it claimed it, or renewed its claim, at this time, in seconds since 1970.
    Completing(i64),
    /// It was completed with these parts, and the object has this tag.
    Done {
        /// Hash of the list of parts.
        parts: String,
        /// The tag in quotes.
        tag: Option<String>,
        /// The object's checksum.
        #[serde(default)]
        checksum: Option<String>,
    },
}

/// The place of an upload. It contains the time at which the bucket was created, so a bucket created again under the same
/// name has no uploads.
#[derive(Clone, Debug)]
pub(crate) struct UploadLocation {
    pub(crate) container: ContainerName,
    pub(crate) created: Option<Timestamp>,
    pub(crate) id: String,
}

/// A stored part.
#[derive(Clone, Debug)]
pub(crate) struct StoredPart {
    pub(crate) path: BlobPath,
    pub(crate) number: i32,
    pub(crate) length: u64,
    pub(crate) tag: Option<EntityTag>,
    pub(crate) info: BlobInfo,
}

/// A loaded upload, and the tag of its version.
#[derive(Clone, Debug)]
pub(crate) struct LoadedUpload {
    pub(crate) upload: Upload,
    pub(crate) tag: Option<EntityTag>,
}

impl UploadLocation {
    /// Returns the place of the upload with this id to a bucket.
    pub(crate) fn new(container: ContainerName, info: &ContainerInfo, id: &str) -> Self {
        Self {
            container,
            created: info.created,
            id: id.to_owned(),
        }
    }

    /// Returns the prefix of the names of all uploads to the bucket.
    pub(crate) fn bucket_prefix(&self) -> String {
        format!(
            "{}/{:016x}/",
            self.container,
            self.created.map_or(0, Timestamp::micros)
        )
    }

    /// Returns the path of the upload.
    fn path(&self) -> Result<BlobPath, InvalidName> {
        Ok(BlobPath {
            container: UPLOADS.clone(),
            name: BlobName::new(&format!("{}{}", self.bucket_prefix(), self.id))?,
        })
    }

    /// Returns the prefix of the names of the upload's parts.
    fn parts_prefix(&self) -> String {
        format!("{}{}/", self.bucket_prefix(), self.id)
    }

    /// Returns the path of the part with this number.
    pub(crate) fn part(&self, number: i32) -> S3Result<BlobPath> {
        let name = BlobName::new(&format!("{}{number:05}", self.parts_prefix()))
            .map_err(error::of_name)?;
        Ok(BlobPath {
            container: PARTS.clone(),
            name,
        })
    }

    /// Loads an upload, which must be one for this key.
    pub(crate) async fn find(&self, store: &dyn BlobStore, key: &str) -> S3Result<LoadedUpload> {
        let loaded = if self.has_id() {
            self.load(store).await.map_err(error::plain)?
        } else {
            None
        };
        loaded
            .filter(|loaded| loaded.upload.key == key)
            .ok_or_else(no_such_upload)
    }

    /// Loads an upload, which must be one for this key, and up to `limit` of its parts after this number. If the upload hasn't ended, no
    /// part is missing: the parts are listed before the upload is loaded, and are removed only after its end.
    pub(crate) async fn find_with_parts(
        &self,
        store: &dyn BlobStore,
        key: &str,
        after: i32,
        limit: usize,
    ) -> S3Result<(LoadedUpload, Vec<StoredPart>)> {
        if !self.has_id() {
            return Err(no_such_upload());
        }
        let parts = self
            .parts(store, after, limit)
            .await
            .map_err(error::plain)?;
        Ok((self.find(store, key).await?, parts))
    }

    /// Returns `true` if the id has the form of an upload's.
    fn has_id(&self) -> bool {
        self.id.len() == 32 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Loads the upload, if there is one.
    pub(crate) async fn load(
        &self,
        store: &dyn BlobStore,
    ) -> Result<Option<LoadedUpload>, StoreError> {
        load(store, &self.path().map_err(broken)?).await
    }

    /// Saves an upload if it still has this tag, or if it is new. Returns the new tag.
    pub(crate) async fn save(
        &self,
        store: &dyn BlobStore,
        upload: &Upload,
        tag: Option<&EntityTag>,
    ) -> Result<Option<EntityTag>, StoreError> {
        let text = serde_json::to_vec(upload)
            .map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?;
        let preconditions = match tag {
            Some(tag) => Preconditions::unchanged(Some(tag)),
            None => Preconditions::absent(),
        };
        let put = Put {
            preconditions,
            ..Put::new(Body::new(Full::new(Bytes::from(text))))
        };
        Ok(store.put(&self.path().map_err(broken)?, put).await?.tag)
    }

    /// Removes an upload if it still has this tag.
    pub(crate) async fn remove(
        &self,
        store: &dyn BlobStore,
        tag: Option<&EntityTag>,
    ) -> Result<(), StoreError> {
        store
            .delete(&self.path().map_err(broken)?, Delete::of_version(tag))
            .await
    }

    /// Returns up to `limit` parts in the order of their numbers, after this number.
    pub(crate) async fn parts(
        &self,
        store: &dyn BlobStore,
        after: i32,
        limit: usize,
    ) -> Result<Vec<StoredPart>, StoreError> {
        let prefix = self.parts_prefix();
        let after = (after > 0).then(|| format!("{prefix}{after:05}"));
        let query = ListQuery {
            prefix: prefix.clone(),
            after,
            ..ListQuery::first(limit.min(STEP))
        };
        let part = |entry: BlobEntry| {
            let number = entry.name.as_str().strip_prefix(&prefix)?.parse().ok()?;
            let path = BlobPath {
                container: PARTS.clone(),
                name: entry.name,
            };
            let (length, tag) = (entry.info.length, entry.info.tag.clone());
            Some(StoredPart {
                path,
                number,
                length,
                tag,
                info: entry.info,
            })
        };
        query
            .blobs(store, &PARTS)
            .try_filter_map(|entry| ready(Ok(part(entry))))
            .take(limit)
            .try_collect()
            .await
    }

    /// Removes all parts. Those that can't be removed now are collected later.
    pub(crate) async fn remove_parts(&self, store: &dyn BlobStore) {
        let parts = self.parts(store, 0, usize::MAX).await.unwrap_or_default();
        let remove = async |part: StoredPart| {
            drop(
                store
                    .delete(&part.path, Delete::of_version(part.tag.as_ref()))
                    .await,
            );
        };
        stream::iter(parts)
            .for_each_concurrent(PARALLEL, remove)
            .await;
    }

    /// Returns `true` if the bucket wasn't replaced or removed. Without a known creation time, assumes so.
    pub(crate) async fn has_bucket(&self, store: &dyn BlobStore) -> Result<bool, StoreError> {
        let Some(created) = self.created else {
            return Ok(true);
        };
        Ok(store
            .container(&self.container)
            .await?
            .is_some_and(|info| info.created == Some(created)))
    }
}

impl StoredPart {
    /// Returns `true` for the tag of the part, or of an earlier one with the same bytes: a client that sends a part twice may list the
    /// tag of either response. If the store knows the hash of the bytes, the tag of a version is this hash and the number of its write.
    pub(crate) fn is_named_by(&self, tag: &EntityTag) -> bool {
        let is_of_bytes = || {
            let bytes = self.info.hash.as_ref().map(ContentHash::content_tag);
            let number = bytes.as_ref().and_then(|bytes| {
                tag.opaque()
                    .strip_prefix(bytes.opaque())?
                    .strip_prefix(b"-")
            });
            !tag.is_weak()
                && number.is_some_and(|number| {
                    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
                })
        };
        self.tag.as_ref().is_some_and(|found| found.strong_eq(tag)) || is_of_bytes()
    }

    /// Returns `true` for the part as it was found, or after it was sent again with the same bytes.
    pub(crate) fn is_still(&self, info: &BlobInfo) -> bool {
        info.tag == self.tag || (info.hash.is_some() && info.hash == self.info.hash)
    }
}

/// Returns the open uploads to a bucket by key and id. They take their memory from `memory`.
pub(crate) async fn of_bucket(
    backend: &Backend,
    place: &UploadLocation,
    memory: &mut DocumentMemory,
) -> Result<Vec<(Upload, String)>, StoreError> {
    let store = &*backend.context.store;
    let prefix = place.bucket_prefix();
    let query = ListQuery {
        prefix: prefix.clone(),
        ..ListQuery::first(STEP)
    };
    let mut entries = query.blobs(store, &UPLOADS);
    let mut found = BTreeMap::new();
    while let Some(entry) = entries.try_next().await? {
        let Some(id) = entry.name.as_str().strip_prefix(&prefix).map(str::to_owned) else {
            continue;
        };
        let length = usize::try_from(entry.info.length).unwrap_or(usize::MAX);
        memory.grow(length.saturating_add(size_of::<Upload>()))?;
        let path = BlobPath {
            container: UPLOADS.clone(),
            name: entry.name,
        };
        let Some(loaded) = load(store, &path).await? else {
            continue;
        };
        if !matches!(loaded.upload.state, UploadState::Done { .. }) {
            found.insert((loaded.upload.key.clone(), id), loaded.upload);
        }
    }
    Ok(found
        .into_iter()
        .map(|((_, id), upload)| (upload, id))
        .collect())
}

/// Loads the upload at this path, if there is one.
async fn load(store: &dyn BlobStore, path: &BlobPath) -> Result<Option<LoadedUpload>, StoreError> {
    let Some(mut opened) = store.open(path, Reading::WHOLE.without_lease()).await? else {
        return Ok(None);
    };
    let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
    let upload = serde_json::from_slice(&bytes)
        .map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?;
    Ok(Some(LoadedUpload {
        upload,
        tag: opened.info.tag,
    }))
}

#[expect(clippy::expect_used, reason = "both names have only letters")]
fn internal(name: &str) -> ContainerName {
    ContainerName::internal(name).expect("the name is valid")
}

/// Translates an invalid name of an internal blob.
fn broken(error: InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}

/// Returns the error for an upload that doesn't exist, or has ended.
pub(super) fn no_such_upload() -> s3s::S3Error {
    s3_error!(
        NoSuchUpload,
        "there is no such upload: it may have been completed or aborted"
    )
}

impl Upload {
    /// Returns the header fields of the object.
    pub(crate) fn headers(&self) -> S3Result<BlobHeaders> {
        self.fields.clone().parse()
    }
}

/// Retention of uploads since their last change, and of parts.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Removes old uploads, and old parts without an upload. Returns the number of entries removed. Continues an interrupted sweep.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    let uploads = (&*UPLOADS, (|_, _| ready(Ok(false)).boxed()) as IsUsed);
    let parts = (
        &*PARTS,
        (|context, part| has_upload(context, part).boxed()) as IsUsed,
    );
    remove_old(context, "uploads", MAX_AGE, &[uploads, parts]).await
}

/// Returns `true` for a part whose upload exists.
async fn has_upload(context: &Context, part: &BlobPath) -> Result<bool, StoreError> {
    let Some((upload, _)) = part.name.as_str().rsplit_once('/') else {
        return Ok(false);
    };
    let Ok(name) = BlobName::new(upload) else {
        return Ok(false);
    };
    let upload = BlobPath {
        container: UPLOADS.clone(),
        name,
    };
    Ok(context
        .store
        .open(&upload, Reading::HEAD.without_lease())
        .await?
        .is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ifmatch_blob::BlobService;
    use ifmatch_blob::test_util::ManualClock;
    use ifmatch_blob_indexed::IndexedStore;
    use ifmatch_register::{Driver, MemoryRegister};

    use super::*;

    /// A store with the bucket `docs`, and two uploads of one part each; of the second, only the part is left.
    async fn uploads_and_parts(store: &dyn BlobStore) -> [UploadLocation; 2] {
        let container = ContainerName::new("docs").unwrap();
        let info = store
            .create_container(&container, BlobHeaders::default())
            .await
            .unwrap();
        let places = ["0", "1"]
            .map(|digit| UploadLocation::new(container.clone(), &info, &digit.repeat(32)));
        let (fields, checksum) = (ObjectFields::default(), ChecksumPlan::default());
        let upload = Upload {
            key: "a".into(),
            fields,
            checksum,
            initiated: 0,
            state: UploadState::Open,
        };
        places[0].save(store, &upload, None).await.unwrap();
        for place in &places {
            let part = Put::new(Body::new(Full::new(Bytes::from("part"))));
            store.put(&place.part(1).unwrap(), part).await.unwrap();
        }
        places
    }

    #[tokio::test]
    async fn uploads_and_parts_are_removed_a_week_after_their_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::default().with_timers();
        let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
        let store: Arc<dyn BlobStore> = Arc::new(
            IndexedStore::with_driver(folder.path(), driver)
                .await
                .unwrap(),
        );
        let service = BlobService::with_clock(Arc::clone(&store), clock.clone());
        let places = uploads_and_parts(&*store).await;
        let left = async || {
            let uploads = usize::from(places[0].load(&*store).await.unwrap().is_some());
            let parts = [
                places[0].parts(&*store, 0, usize::MAX).await.unwrap(),
                places[1].parts(&*store, 0, usize::MAX).await.unwrap(),
            ];
            (uploads, parts.map(|parts| parts.len()))
        };
        assert_eq!(collect(service.context()).await.unwrap(), 0);
        assert_eq!(left().await, (1, [1, 1]), "all are too recent");
        clock.advance(MAX_AGE);
        assert_eq!(collect(service.context()).await.unwrap(), 0);
        clock.advance(Duration::from_mins(2));
        assert_eq!(collect(service.context()).await.unwrap(), 3);
        assert_eq!(left().await, (0, [0, 0]));
    }
}
