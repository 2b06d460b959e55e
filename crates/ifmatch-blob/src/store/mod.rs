//! The contract of blob stores: the trait, its arguments and its results.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use async_trait::async_trait;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{Lease, LeaseUse};
use ifmatch_core::precondition::{Preconditions, Validators};
use ifmatch_core::record::{RequestId, Revision};

use crate::body::{AnyBody, BlobBody};
use crate::headers::{BlobHeaders, ContentMd5};
use crate::name::{BlobName, BlobPath, ContainerName};

pub use crate::content_md5::{Md5Use, Md5Watch};
pub use change::{ContainerInfo, HeaderChange, LeaseRequest, Leased, SetHeaders};
pub use error::{BoxError, StoreError, StoreErrorKind};
pub use peek::{Cached, Peek};

mod change;
mod error;
mod peek;

/// A store of blobs, each in a container.
///
/// # Guarantees of an implementation
/// - **One version**: everything that [`open`](Self::open) returns, and all bytes then read through it, belong to one version
///   of the blob, regardless of concurrent writes. Bytes never come with another version's tag.
/// - **One step**: the preconditions of a write hold for the very version that it replaces. If two writers expect the same
///   version, one of them gets [`StoreErrorKind::PreconditionFailed`].
/// - **All or nothing**: a write that fails, is interrupted or is dropped leaves the blob unchanged. Only
///   [`StoreErrorKind::OutcomeUnknown`] leaves that open.
/// - **Durable**: an acknowledged write survives a crash.
/// - **Early**: conditions that already fail are reported before the body is read, so that a client that waits for
///   `100 Continue` need not send it.
/// - **Bounded**: memory use does not depend on the size of a blob.
///
/// # What callers may assume
/// The first write of a blob creates its container. Listings are in the order of the names' UTF-8 bytes. They may or may
/// not include concurrent changes.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::{BodyExt, Full};
/// use ifmatch_blob::BlobStore;
/// use ifmatch_blob::name::BlobPath;
/// use ifmatch_blob::store::{Delete, Put, Reading, Upload};
/// use ifmatch_blob_embedded::EmbeddedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = EmbeddedStore::open(folder.path()).await?;
/// let blob = BlobPath::parse("/notes/today.txt")?;
/// let written = store.put(&blob, Put::new(Upload::new(Full::<Bytes>::from("hello")))).await?;
///
/// let mut opened = store.open(&blob, Reading::WHOLE).await?.unwrap();
/// assert_eq!(opened.info.tag, written.tag);
/// let body = opened.source.read(None).await?.collect().await?;
/// assert_eq!(body.to_bytes(), "hello");
///
/// store.delete(&blob, Delete::default()).await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait BlobStore: Send + Sync + 'static {
    /// Opens a blob for reading. Returns `None` if there is no such blob.
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError>;

    /// Returns the answers that this store can give without waiting, if it has any.
    fn peek(&self) -> Option<&dyn Peek>;

    /// Writes a blob, and creates its container if necessary.
    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError>;

    /// Deletes a blob. [`StoreErrorKind::NotFound`] if there is none, whatever the conditions.
    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError>;

    /// Lists the blobs of a container. Returns `None` if there is no such container.
    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError>;

    /// Replaces header fields of a blob: a new version with the same bytes. [`StoreErrorKind::NotFound`] if there is no
    /// such blob.
    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError>;

    /// Acquires, renews, changes, releases or breaks the lease of a blob. [`StoreErrorKind::NotFound`] if there is no
    /// such blob.
    ///
    /// A store that cannot keep leases across a restart rejects them with [`StoreErrorKind::Unsupported`].
    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError>;

    /// Creates a container. [`StoreErrorKind::ContainerExists`] if there is one already.
    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError>;

    /// Returns the properties of a container, or `None` if there is no such container.
    async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError>;

    /// Replaces the user's own fields of a container. [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn set_container(&self, container: &ContainerName, set: SetHeaders) -> Result<ContainerInfo, StoreError>;

    /// Acquires, renews, changes, releases or breaks the lease of a container, which protects it from deletion.
    /// [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn lease_container(&self, container: &ContainerName, request: LeaseRequest) -> Result<Leased, StoreError>;

    /// Deletes a container with all its blobs in one step: a container created under the same name afterwards is
    /// empty. [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError>;

    /// Lists the containers.
    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError>;
}

/// The parts of a blob that a caller is going to use, so that a remote store gets no more requests than necessary.
///
/// ```
/// use ifmatch_blob::store::Reading;
///
/// let properties = Reading::HEAD.without_lease();
/// assert!(Reading::HEAD.lease && !properties.lease);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The bytes that will be read.
    pub extent: Extent,
    /// [`BlobInfo::lease`] will be used. Otherwise it may be missing.
    pub lease: bool,
}

/// The bytes of a blob that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No bytes.
    None,
    /// All bytes, most likely.
    All,
    /// Some ranges, all bytes, or none.
    Ranges,
}

impl Reading {
    /// Only the properties.
    pub const HEAD: Self = Self { extent: Extent::None, lease: true };
    /// All bytes, most likely.
    pub const WHOLE: Self = Self { extent: Extent::All, lease: true };
    /// Some ranges, or all bytes, or none.
    pub const RANGES: Self = Self { extent: Extent::Ranges, lease: true };

    /// Returns the same without the lease.
    #[must_use]
    pub const fn without_lease(self) -> Self {
        Self { lease: false, ..self }
    }
}

/// The properties of one version of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// The entity tag. A missing or weak tag never satisfies `If-Match`.
    pub tag: Option<EntityTag>,
    /// The modification date. Send it only once it [has come](HttpDate::has_come).
    pub last_modified: HttpDate,
    /// Number of bytes.
    pub length: u64,
    /// The hash of the bytes, if the store knows it.
    pub hash: Option<ContentHash>,
    /// The header fields kept with the blob.
    pub headers: BlobHeaders,
    /// The number of the write that created this version, larger than that of all earlier versions. `None` if the store
    /// does not number its writes.
    pub generation: Option<Revision>,
    /// When the blob was created, if the store knows it.
    pub created: Option<Timestamp>,
    /// The lease. Its [`LeaseState`](ifmatch_core::lease::LeaseState) shows if it still locks the blob.
    pub lease: Option<Lease>,
}

impl BlobInfo {
    /// Returns the validators for preconditions.
    pub fn validators(&self) -> Validators<'_> {
        Validators { tags: self.tag.as_slice(), last_modified: Some(self.last_modified) }
    }
}

/// One version of a blob, opened for reading.
pub struct Opened {
    /// Its properties.
    pub info: BlobInfo,
    /// Its bytes.
    pub source: Box<dyn Source>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The bytes of one version of a blob.
///
/// Every read returns bytes of this version, or an error, regardless of writes and deletions.
pub trait Source: Send + 'static {
    /// Reads a range, or all bytes. A range is not empty and lies within the blob.
    ///
    /// May be called again once the previous body is no longer read. A blob opened with [`Reading::HEAD`] returns an
    /// empty body.
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody>;
}

/// The boxed future of a [`Source`].
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The body of a request, with the client's error.
pub type Upload = AnyBody<BoxError>;

/// A write.
#[derive(Debug)]
pub struct Put {
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// What to do if the container does not exist.
    pub container: MissingContainer,
    /// The header fields to keep.
    pub headers: BlobHeaders,
    /// Handling of the MD5 of the bytes.
    pub md5: Md5Use,
    /// The bytes.
    pub body: Upload,
    /// Length declared by the client. Another length fails with [`StoreErrorKind::LengthMismatch`].
    pub length: Option<u64>,
    /// Hash declared by the client. Another hash fails with [`StoreErrorKind::DigestMismatch`].
    pub digest: Option<ContentHash>,
    /// The client's name for the request. A retry gets the first answer again.
    pub request: Option<RequestKey>,
    /// Maximum number of bytes. A longer body fails with [`StoreErrorKind::TooLarge`].
    pub limit: u64,
}

impl Put {
    /// Creates an unconditional write of these bytes.
    pub fn new(body: Upload) -> Self {
        Self {
            preconditions: Preconditions::default(),
            lease: LeaseUse::default(),
            container: MissingContainer::Create,
            headers: BlobHeaders::default(),
            md5: Md5Use::default(),
            body,
            length: None,
            digest: None,
            request: None,
            limit: u64::MAX,
        }
    }
}

/// Behaviour of a write to a container that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingContainer {
    /// Creates the container.
    Create,
    /// Fails with [`StoreErrorKind::ContainerNotFound`], also if the container is deleted before the whole body has
    /// arrived, even if another one has its name by then.
    Refuse,
}

/// A deletion.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// The conditions of the request.
    pub preconditions: Preconditions,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// The client's name for the request. A retry gets the first answer again.
    pub request: Option<RequestKey>,
}

/// The client's name for a request, the same for all its retries.
///
/// ```
/// use ifmatch_blob::store::RequestKey;
/// use ifmatch_core::digest::ContentHash;
///
/// let key = RequestKey::of(&[b"8e03978e", b"PUT"]);
/// let content = ContentHash::of(b"hello");
/// assert_eq!(key.request(Some(&content)), key.clone().request(Some(&content)));
/// assert_ne!(key.request(Some(&content)), key.request(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey(ContentHash);

impl RequestKey {
    /// Creates a key from the client's key and everything in the head that affects the outcome.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut framed = Vec::new();
        for part in parts {
            framed.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            framed.extend_from_slice(part);
        }
        Self(ContentHash::of(&framed))
    }

    /// Returns the identity of the request, including the hash of its content. The same key with other content is
    /// another request.
    pub fn request(&self, content: Option<&ContentHash>) -> RequestId {
        let content = content.map_or(&[][..], |hash| &hash.as_bytes()[..]);
        RequestId::of(&[self.0.as_bytes(), content])
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The new tag.
    pub tag: Option<EntityTag>,
    /// The modification date. Send it only once it [has come](HttpDate::has_come).
    pub last_modified: HttpDate,
    /// The hash of the bytes, if the store knows it.
    pub hash: Option<ContentHash>,
    /// MD5 kept with the blob.
    pub md5: Option<ContentMd5>,
    /// The number of this write, if the store numbers its writes.
    pub generation: Option<Revision>,
    /// There was no such blob before.
    pub created: bool,
}

/// The part of a listing to return.
///
/// ```
/// use ifmatch_blob::store::ListQuery;
/// let first = ListQuery { prefix: "2026/".into(), after: None, limit: 100 };
/// let second = ListQuery { after: Some("2026/cat.jpg".into()), ..first };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Prefix of the names; empty for all names.
    pub prefix: String,
    /// Name to continue after: [`Page::next`] of the previous page.
    pub after: Option<String>,
    /// Maximum number of names in the page, at least 1.
    pub limit: usize,
}

/// A page of a listing, in the order of the names' bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Name to continue after, or `None` at the end.
    pub next: Option<String>,
}

/// A blob in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobEntry {
    /// Its name.
    pub name: BlobName,
    /// Its properties. Header fields may be missing if the store's listings do not contain them.
    pub info: BlobInfo,
}

/// A container in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Its name.
    pub name: ContainerName,
    /// Its properties.
    pub info: ContainerInfo,
}
