//! The contract of blob stores: the trait, its arguments and its results.

use async_trait::async_trait;

use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};

pub use crate::body::Upload;
pub use crate::error::{BoxError, StoreError, StoreErrorKind};
pub use append::{AppendBlock, Appended};
pub use list::{BlobEntry, ContainerEntry, Hierarchy, ListQuery, Listed, Listing, Page, behind};
pub use md5::{Md5Use, Md5Watch};
pub use read::{BlobInfo, Cached, Extent, Opened, Peek, Reading, Reply, Source};
pub use turns::Turns;
pub use update::{ChangeOf, ContentChange, Current, Update, Updated};
pub use wrapper::Wrapper;
pub use write::{
    ContainerInfo, Delete, HeaderChange, LastSnapshot, LateChecksum, LeaseRequest, Leased,
    MissingContainer, Put, RequestKey, SetHeaders, Written,
};

mod append;
mod list;
mod md5;
mod read;
mod turns;
mod update;
mod wrapper;
mod write;

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
/// - **Early**: conditions that already fail are reported before the body is read, so a client that waits for
///   `100 Continue` needn't send it.
/// - **Bounded**: memory use doesn't depend on the size of a blob.
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
/// use ifmatch_blob_indexed::IndexedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = IndexedStore::open(folder.path()).await?;
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

    /// Returns the responses that this store can give without waiting, if it has any.
    fn peek(&self) -> Option<&dyn Peek>;

    /// Returns `true` if this process has an index of the blobs: a look at one costs no request, and tells when it was created.
    fn has_index(&self) -> bool {
        self.peek().is_some()
    }

    /// Writes a blob, and creates its container if necessary.
    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError>;

    /// Appends a block to an append blob. [`StoreErrorKind::NotFound`] if there is no such blob, [`StoreErrorKind::OtherType`] if it is
    /// another blob, and [`StoreErrorKind::AppendFailed`] if it is sealed, or doesn't end where the request expects.
    ///
    /// Appends that wait at one blob are made in order of arrival: none is refused because others were faster.
    async fn append(&self, blob: &BlobPath, append: AppendBlock) -> Result<Appended, StoreError>;

    /// Changes a small blob by a function of its content. See [`Update`]. [`StoreErrorKind::NotFound`] if the function deletes a blob that
    /// doesn't exist.
    async fn update(&self, blob: &BlobPath, update: Update) -> Result<Updated, StoreError>;

    /// Deletes a blob. [`StoreErrorKind::NotFound`] if there is none, regardless of the conditions.
    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError>;

    /// Lists the blobs of a container. Returns `None` if there is no such container.
    async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError>;

    /// Replaces header fields of a blob: a new version with the same bytes, or, for tags, the same version. [`StoreErrorKind::NotFound`]
    /// if there is no such blob.
    ///
    /// A store that can't change tags without a new version rejects that with [`StoreErrorKind::Unsupported`].
    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError>;

    /// Acquires, renews, changes, releases or breaks the lease of a blob. [`StoreErrorKind::NotFound`] if there is no
    /// such blob.
    ///
    /// A store that can't keep leases across a restart rejects them with [`StoreErrorKind::Unsupported`].
    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError>;

    /// Creates a container. [`StoreErrorKind::ContainerExists`] if there is one already.
    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError>;

    /// Returns the properties of a container, or `None` if there is no such container.
    async fn container(
        &self,
        container: &ContainerName,
    ) -> Result<Option<ContainerInfo>, StoreError>;

    /// Replaces the user's own fields of a container. [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError>;

    /// Acquires, renews, changes, releases or breaks the lease of a container, which protects it from deletion.
    /// [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn lease_container(
        &self,
        container: &ContainerName,
        request: LeaseRequest,
    ) -> Result<Leased, StoreError>;

    /// Deletes a container with all its blobs in one step: a container created under the same name afterwards is
    /// empty. [`StoreErrorKind::ContainerNotFound`] if there is none.
    async fn delete_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError>;

    /// Deletes a container if it has no blobs. [`StoreErrorKind::ContainerNotEmpty`] if it has some, and
    /// [`StoreErrorKind::ContainerNotFound`] if there is no such container.
    ///
    /// No acknowledged write is lost: a blob that is written at the same time is there afterwards, or its write fails.
    async fn delete_empty_container(
        &self,
        container: &ContainerName,
        delete: Delete,
    ) -> Result<(), StoreError>;

    /// Lists the containers.
    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError>;
}
