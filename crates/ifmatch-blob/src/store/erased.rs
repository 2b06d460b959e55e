//! A blob store chosen at run time.

use std::fmt;
use std::sync::Arc;

use super::{
    AtHand, BlobEntry, BlobStore, ContainerEntry, ContainerInfo, Delete, LeaseRequest, Leased, ListQuery, Opened, Page,
    Put, Reading, Reply, SetHeaders, StoreError, Written,
};
use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};

/// Any store, behind a pointer: for programs that choose theirs at run time. Cheap to clone; costs one allocation
/// per call.
///
/// ```
/// use ifmatch_blob::{AnyStore, BlobService};
/// use ifmatch_blob_embedded::EmbeddedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = AnyStore::new(EmbeddedStore::open(folder.path()).await?);
/// let service = BlobService::new(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Erased>);

impl AnyStore {
    /// Wraps a store.
    pub fn new(store: impl BlobStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStore")
    }
}

trait Erased: Send + Sync + 'static {
    fn open<'a>(&'a self, blob: &'a BlobPath, reading: Reading) -> Reply<'a, Option<Opened>>;
    fn open_unleased<'a>(&'a self, blob: &'a BlobPath, reading: Reading) -> Reply<'a, Option<Opened>>;
    fn at_hand(&self, blob: &BlobPath) -> Option<AtHand>;
    fn is_known_empty(&self, container: &ContainerName) -> bool;
    fn put<'a>(&'a self, blob: &'a BlobPath, put: Put) -> Reply<'a, Written>;
    fn delete<'a>(&'a self, blob: &'a BlobPath, delete: Delete) -> Reply<'a, ()>;
    fn list<'a>(&'a self, container: &'a ContainerName, query: &'a ListQuery) -> Reply<'a, Option<Page<BlobEntry>>>;
    fn set_headers<'a>(&'a self, blob: &'a BlobPath, set: SetHeaders) -> Reply<'a, Written>;
    fn lease<'a>(&'a self, blob: &'a BlobPath, request: LeaseRequest) -> Reply<'a, Leased>;
    fn create_container<'a>(&'a self, container: &'a ContainerName, headers: BlobHeaders) -> Reply<'a, ContainerInfo>;
    fn container<'a>(&'a self, container: &'a ContainerName) -> Reply<'a, Option<ContainerInfo>>;
    fn set_container<'a>(&'a self, container: &'a ContainerName, set: SetHeaders) -> Reply<'a, ContainerInfo>;
    fn lease_container<'a>(&'a self, container: &'a ContainerName, request: LeaseRequest) -> Reply<'a, Leased>;
    fn delete_container<'a>(&'a self, container: &'a ContainerName, delete: Delete) -> Reply<'a, ()>;
    fn containers<'a>(&'a self, query: &'a ListQuery) -> Reply<'a, Page<ContainerEntry>>;
}

impl<S: BlobStore> Erased for S {
    fn open<'a>(&'a self, blob: &'a BlobPath, reading: Reading) -> Reply<'a, Option<Opened>> {
        Box::pin(BlobStore::open(self, blob, reading))
    }

    fn open_unleased<'a>(&'a self, blob: &'a BlobPath, reading: Reading) -> Reply<'a, Option<Opened>> {
        Box::pin(BlobStore::open_unleased(self, blob, reading))
    }

    fn at_hand(&self, blob: &BlobPath) -> Option<AtHand> {
        BlobStore::at_hand(self, blob)
    }

    fn is_known_empty(&self, container: &ContainerName) -> bool {
        BlobStore::is_known_empty(self, container)
    }

    fn put<'a>(&'a self, blob: &'a BlobPath, put: Put) -> Reply<'a, Written> {
        Box::pin(BlobStore::put(self, blob, put))
    }

    fn delete<'a>(&'a self, blob: &'a BlobPath, delete: Delete) -> Reply<'a, ()> {
        Box::pin(BlobStore::delete(self, blob, delete))
    }

    fn list<'a>(&'a self, container: &'a ContainerName, query: &'a ListQuery) -> Reply<'a, Option<Page<BlobEntry>>> {
        Box::pin(BlobStore::list(self, container, query))
    }

    fn set_headers<'a>(&'a self, blob: &'a BlobPath, set: SetHeaders) -> Reply<'a, Written> {
        Box::pin(BlobStore::set_headers(self, blob, set))
    }

    fn lease<'a>(&'a self, blob: &'a BlobPath, request: LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(BlobStore::lease(self, blob, request))
    }

    fn create_container<'a>(&'a self, container: &'a ContainerName, headers: BlobHeaders) -> Reply<'a, ContainerInfo> {
        Box::pin(BlobStore::create_container(self, container, headers))
    }

    fn container<'a>(&'a self, container: &'a ContainerName) -> Reply<'a, Option<ContainerInfo>> {
        Box::pin(BlobStore::container(self, container))
    }

    fn set_container<'a>(&'a self, container: &'a ContainerName, set: SetHeaders) -> Reply<'a, ContainerInfo> {
        Box::pin(BlobStore::set_container(self, container, set))
    }

    fn lease_container<'a>(&'a self, container: &'a ContainerName, request: LeaseRequest) -> Reply<'a, Leased> {
        Box::pin(BlobStore::lease_container(self, container, request))
    }

    fn delete_container<'a>(&'a self, container: &'a ContainerName, delete: Delete) -> Reply<'a, ()> {
        Box::pin(BlobStore::delete_container(self, container, delete))
    }

    fn containers<'a>(&'a self, query: &'a ListQuery) -> Reply<'a, Page<ContainerEntry>> {
        Box::pin(BlobStore::containers(self, query))
    }
}

#[deny(clippy::missing_trait_methods)]
impl BlobStore for AnyStore {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        Erased::open(&*self.0, blob, reading).await
    }

    async fn open_unleased(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        Erased::open_unleased(&*self.0, blob, reading).await
    }

    fn at_hand(&self, blob: &BlobPath) -> Option<AtHand> {
        Erased::at_hand(&*self.0, blob)
    }

    fn is_known_empty(&self, container: &ContainerName) -> bool {
        Erased::is_known_empty(&*self.0, container)
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        Erased::put(&*self.0, blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        Erased::delete(&*self.0, blob, delete).await
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        Erased::list(&*self.0, container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        Erased::set_headers(&*self.0, blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        Erased::lease(&*self.0, blob, request).await
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        Erased::create_container(&*self.0, container, headers).await
    }

    async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        Erased::container(&*self.0, container).await
    }

    async fn set_container(&self, container: &ContainerName, set: SetHeaders) -> Result<ContainerInfo, StoreError> {
        Erased::set_container(&*self.0, container, set).await
    }

    async fn lease_container(&self, container: &ContainerName, request: LeaseRequest) -> Result<Leased, StoreError> {
        Erased::lease_container(&*self.0, container, request).await
    }

    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        Erased::delete_container(&*self.0, container, delete).await
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        Erased::containers(&*self.0, query).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: BlobStore> BlobStore for Arc<S> {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        S::open(self, blob, reading).await
    }

    async fn open_unleased(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        S::open_unleased(self, blob, reading).await
    }

    fn at_hand(&self, blob: &BlobPath) -> Option<AtHand> {
        S::at_hand(self, blob)
    }

    fn is_known_empty(&self, container: &ContainerName) -> bool {
        S::is_known_empty(self, container)
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        S::put(self, blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        S::delete(self, blob, delete).await
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        S::list(self, container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        S::set_headers(self, blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        S::lease(self, blob, request).await
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        S::create_container(self, container, headers).await
    }

    async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        S::container(self, container).await
    }

    async fn set_container(&self, container: &ContainerName, set: SetHeaders) -> Result<ContainerInfo, StoreError> {
        S::set_container(self, container, set).await
    }

    async fn lease_container(&self, container: &ContainerName, request: LeaseRequest) -> Result<Leased, StoreError> {
        S::lease_container(self, container, request).await
    }

    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        S::delete_container(self, container, delete).await
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        S::containers(self, query).await
    }
}
