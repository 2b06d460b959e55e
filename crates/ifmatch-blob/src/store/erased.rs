//! A blob store chosen at run time.

use std::fmt;
use std::sync::Arc;

use super::{
    BlobEntry, BlobStore, ContainerEntry, Delete, ListQuery, Opened, Page, Put, Reading, Reply, StoreError, Written,
};
use crate::name::{BlobPath, ContainerName};

/// Any store, behind a pointer: for programs that choose theirs at run time. Cheap to clone; costs one allocation
/// per call.
///
/// ```
/// use ifmatch_blob::{AnyStore, BlobService, EmbeddedStore};
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
    fn put<'a>(&'a self, blob: &'a BlobPath, put: Put) -> Reply<'a, Written>;
    fn delete<'a>(&'a self, blob: &'a BlobPath, delete: Delete) -> Reply<'a, ()>;
    fn list<'a>(&'a self, container: &'a ContainerName, query: &'a ListQuery) -> Reply<'a, Option<Page<BlobEntry>>>;
    fn containers<'a>(&'a self, query: &'a ListQuery) -> Reply<'a, Page<ContainerEntry>>;
}

impl<S: BlobStore> Erased for S {
    fn open<'a>(&'a self, blob: &'a BlobPath, reading: Reading) -> Reply<'a, Option<Opened>> {
        Box::pin(BlobStore::open(self, blob, reading))
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

    fn containers<'a>(&'a self, query: &'a ListQuery) -> Reply<'a, Page<ContainerEntry>> {
        Box::pin(BlobStore::containers(self, query))
    }
}

#[deny(clippy::missing_trait_methods)]
impl BlobStore for AnyStore {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        Erased::open(&*self.0, blob, reading).await
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

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        Erased::containers(&*self.0, query).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: BlobStore> BlobStore for Arc<S> {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        S::open(self, blob, reading).await
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

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        S::containers(self, query).await
    }
}
