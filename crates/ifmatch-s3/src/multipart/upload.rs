//! An upload in parts, and where it is kept: a blob for the upload, and one for each part, in internal containers.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, Full};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, InvalidName};
use ifmatch_blob::store::{
    BlobEntry, BlobInfo, BlobStore, ContainerInfo, Delete, ListQuery, Put, Reading, StoreError, StoreErrorKind,
    Upload as Body,
};
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::checksum::Plan;
use crate::convert::Fields;
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
    pub(crate) fields: Fields,
    #[serde(default)]
    pub(crate) checksum: Plan,
    /// When the upload was created, in seconds since 1970.
    pub(crate) initiated: i64,
    pub(crate) state: State,
}

/// The state of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
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
        /// The checksum of the object.
        #[serde(default)]
        checksum: Option<String>,
    },
}

/// The place of an upload. It contains the time at which the bucket was created, so that a bucket created again under the same
/// name has no uploads.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) container: ContainerName,
    pub(crate) created: Option<Timestamp>,
    pub(crate) id: String,
}

/// A stored part.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) path: BlobPath,
    pub(crate) number: i32,
    pub(crate) length: u64,
    pub(crate) tag: Option<EntityTag>,
    pub(crate) info: BlobInfo,
}

/// A loaded upload, and the tag of its version.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) upload: Upload,
    pub(crate) tag: Option<EntityTag>,
}

impl Place {
    pub(crate) fn new(container: ContainerName, info: &ContainerInfo, id: &str) -> Self {
        Self { container, created: info.created, id: id.to_owned() }
    }

    /// Prefix of the names of all uploads to a bucket.
    pub(crate) fn bucket_prefix(&self) -> String {
        format!("{}/{:016x}/", self.container, self.created.map_or(0, Timestamp::micros))
    }

    /// The path of the upload.
    fn path(&self) -> Result<BlobPath, InvalidName> {
        Ok(BlobPath {
            container: UPLOADS.clone(),
            name: BlobName::new(&format!("{}{}", self.bucket_prefix(), self.id))?,
        })
    }

    /// Prefix of the names of the upload's parts.
    fn parts_prefix(&self) -> String {
        format!("{}{}/", self.bucket_prefix(), self.id)
    }

    pub(crate) fn part(&self, number: i32) -> S3Result<BlobPath> {
        let name = BlobName::new(&format!("{}{number:05}", self.parts_prefix())).map_err(error::of_name)?;
        Ok(BlobPath { container: PARTS.clone(), name })
    }

    /// Loads an upload, which must be one for this key.
    pub(crate) async fn find(&self, store: &dyn BlobStore, key: &str) -> S3Result<Loaded> {
        let loaded = if self.has_id() { self.load(store).await.map_err(|failed| error::plain(&failed))? } else { None };
        loaded.filter(|loaded| loaded.upload.key == key).ok_or_else(no_such_upload)
    }

    /// Loads an upload, which must be one for this key, and its parts after this number. If the upload has not ended, no part is
    /// missing: the parts are listed before the upload is loaded, and are removed only after its end.
    pub(crate) async fn find_with_parts(
        &self,
        store: &dyn BlobStore,
        key: &str,
        after: i32,
    ) -> S3Result<(Loaded, Vec<Part>)> {
        if !self.has_id() {
            return Err(no_such_upload());
        }
        let parts = self.parts(store, after).await.map_err(|failed| error::plain(&failed))?;
        Ok((self.find(store, key).await?, parts))
    }

    /// Returns `true` if the id has the form of an upload's.
    fn has_id(&self) -> bool {
        self.id.len() == 32 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    pub(crate) async fn load(&self, store: &dyn BlobStore) -> Result<Option<Loaded>, StoreError> {
        load(store, &self.path().map_err(broken)?).await
    }

    /// Saves an upload if it still has this tag, or if it is new. Returns the new tag.
    pub(crate) async fn save(
        &self,
        store: &dyn BlobStore,
        upload: &Upload,
        tag: Option<&EntityTag>,
    ) -> Result<Option<EntityTag>, StoreError> {
        let text = serde_json::to_vec(upload).map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?;
        let preconditions = match tag {
            Some(tag) => unchanged(Some(tag)),
            None => Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::NONE },
        };
        let put = Put { preconditions, ..Put::new(Body::new(Full::new(Bytes::from(text)))) };
        Ok(store.put(&self.path().map_err(broken)?, put).await?.tag)
    }

    /// Removes an upload if it still has this tag.
    pub(crate) async fn remove(&self, store: &dyn BlobStore, tag: Option<&EntityTag>) -> Result<(), StoreError> {
        remove(store, &self.path().map_err(broken)?, tag).await
    }

    /// Returns the parts in the order of their numbers, after this number.
    pub(crate) async fn parts(&self, store: &dyn BlobStore, after: i32) -> Result<Vec<Part>, StoreError> {
        let prefix = self.parts_prefix();
        let after = (after > 0).then(|| format!("{prefix}{after:05}"));
        let query = ListQuery { prefix: prefix.clone(), after, ..ListQuery::first(STEP) };
        let part = |entry: BlobEntry| {
            let number = entry.name.as_str().strip_prefix(&prefix)?.parse().ok()?;
            let path = BlobPath { container: PARTS.clone(), name: entry.name };
            let (length, tag) = (entry.info.length, entry.info.tag.clone());
            Some(Part { path, number, length, tag, info: entry.info })
        };
        query.blobs(store, &PARTS).try_filter_map(|entry| ready(Ok(part(entry)))).try_collect().await
    }

    /// Removes all parts. Those that cannot be removed now are collected later.
    pub(crate) async fn remove_parts(&self, store: &dyn BlobStore) {
        let parts = self.parts(store, 0).await.unwrap_or_default();
        let remove = async |part: Part| drop(remove(store, &part.path, part.tag.as_ref()).await);
        stream::iter(parts).for_each_concurrent(PARALLEL, remove).await;
    }

    /// Returns `true` if the bucket was not replaced or removed. Without a known creation time, assumes so.
    pub(crate) async fn has_bucket(&self, store: &dyn BlobStore) -> Result<bool, StoreError> {
        let Some(created) = self.created else { return Ok(true) };
        Ok(store.container(&self.container).await?.is_some_and(|info| info.created == Some(created)))
    }
}

impl Part {
    /// Returns `true` for the tag of the part, or of an earlier one with the same bytes: a client that sends a part twice may list the
    /// tag of either answer. If the store knows the hash of the bytes, the tag of a version is that and the number of its write.
    pub(crate) fn is_named_by(&self, tag: &EntityTag) -> bool {
        let is_of_bytes = || {
            let bytes = self.info.hash.as_ref().map(ContentHash::content_tag);
            let number = bytes.as_ref().and_then(|bytes| tag.opaque().strip_prefix(bytes.opaque())?.strip_prefix(b"-"));
            !tag.is_weak() && number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
        };
        self.tag.as_ref().is_some_and(|found| found.strong_eq(tag)) || is_of_bytes()
    }

    /// Returns `true` for the part as it was found, or after it was sent again with the same bytes.
    pub(crate) fn is_still(&self, info: &BlobInfo) -> bool {
        info.tag == self.tag || (info.hash.is_some() && info.hash == self.info.hash)
    }
}

/// Returns the open uploads to a bucket by key and id.
pub(crate) async fn of_bucket(backend: &Backend, place: &Place) -> Result<Vec<(Upload, String)>, StoreError> {
    let store = &*backend.context.store;
    let prefix = place.bucket_prefix();
    let query = ListQuery { prefix: prefix.clone(), ..ListQuery::first(STEP) };
    let mut entries = query.blobs(store, &UPLOADS);
    let mut found = BTreeMap::new();
    while let Some(entry) = entries.try_next().await? {
        let Some(id) = entry.name.as_str().strip_prefix(&prefix).map(str::to_owned) else { continue };
        let path = BlobPath { container: UPLOADS.clone(), name: entry.name };
        let Some(loaded) = load(store, &path).await? else { continue };
        if !matches!(loaded.upload.state, State::Done { .. }) {
            found.insert((loaded.upload.key.clone(), id), loaded.upload);
        }
    }
    Ok(found.into_iter().map(|((_, id), upload)| (upload, id)).collect())
}

async fn load(store: &dyn BlobStore, path: &BlobPath) -> Result<Option<Loaded>, StoreError> {
    let Some(mut opened) = store.open(path, Reading::WHOLE.without_lease()).await? else { return Ok(None) };
    let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
    let upload = serde_json::from_slice(&bytes).map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?;
    Ok(Some(Loaded { upload, tag: opened.info.tag }))
}

/// Removes a blob if it still has this tag.
pub(super) async fn remove(store: &dyn BlobStore, path: &BlobPath, tag: Option<&EntityTag>) -> Result<(), StoreError> {
    store.delete(path, Delete { preconditions: unchanged(tag), ..Delete::default() }).await
}

/// The condition that a blob still has this tag. Without a tag, it is never true.
fn unchanged(tag: Option<&EntityTag>) -> Preconditions {
    let if_match = Some(TagList::Tags(tag.into_iter().cloned().collect()));
    Preconditions { if_match, ..Preconditions::NONE }
}

#[expect(clippy::expect_used, reason = "both names have only letters")]
fn internal(name: &str) -> ContainerName {
    ContainerName::internal(name).expect("the name is valid")
}

fn broken(error: InvalidName) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}

pub(super) fn no_such_upload() -> s3s::S3Error {
    s3_error!(NoSuchUpload, "there is no such upload: it may have been completed or aborted")
}

impl Upload {
    /// Returns the header fields of the object.
    pub(crate) fn headers(&self) -> S3Result<BlobHeaders> {
        self.fields.clone().parse()
    }
}
