//! A store whose leases are counted.

use std::sync::Arc;

use async_trait::async_trait;
use ifmatch_blob::BlobStore;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobEntry, ContainerEntry, ContainerInfo, Delete, LeaseRequest, Leased, ListQuery, Opened, Page, Peek, Put,
    Reading, SetHeaders, StoreError, Written,
};
use ifmatch_runtime::{Clock, SystemClock};

use super::book::Book;
use super::list::Place;

/// A store whose leases are counted in a book. Does what the store does.
#[derive(Clone)]
pub(crate) struct Observed {
    store: Arc<dyn BlobStore>,
    book: Arc<Book>,
}

impl Observed {
    /// Counts what becomes of the leases of `store`.
    pub(crate) fn new(store: Arc<dyn BlobStore>, book: Arc<Book>) -> Self {
        Self { store, book }
    }

    /// Brings the book up to date with the clock.
    pub(crate) fn look_through(&self) {
        self.book.look_through(SystemClock.now());
    }

    /// Notes that a lease did not allow something.
    pub(crate) fn refused(&self) {
        self.book.refused();
    }

    fn operated(
        &self,
        place: Place,
        request: &LeaseRequest,
        result: Result<Leased, StoreError>,
    ) -> Result<Leased, StoreError> {
        let leased = result?;
        self.book.operated(place, request.action, &leased.receipt, SystemClock.now());
        Ok(leased)
    }

    fn deleted(&self, place: &Place, result: Result<(), StoreError>) -> Result<(), StoreError> {
        result?;
        self.book.deleted(place, SystemClock.now());
        Ok(())
    }
}

#[async_trait]
impl BlobStore for Observed {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.store.open(blob, reading).await
    }

    fn peek(&self) -> Option<&dyn Peek> {
        self.store.peek()
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        self.store.put(blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.deleted(&place(blob), self.store.delete(blob, delete).await)
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.store.list(container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        self.store.set_headers(blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.operated(place(blob), &request.clone(), self.store.lease(blob, request).await)
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.store.create_container(container, headers).await
    }

    async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        self.store.container(container).await
    }

    async fn set_container(&self, container: &ContainerName, set: SetHeaders) -> Result<ContainerInfo, StoreError> {
        self.store.set_container(container, set).await
    }

    async fn lease_container(&self, container: &ContainerName, request: LeaseRequest) -> Result<Leased, StoreError> {
        let result = self.store.lease_container(container, request.clone()).await;
        self.operated(Place { container: container.clone(), blob: None }, &request, result)
    }

    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        let place = Place { container: container.clone(), blob: None };
        self.deleted(&place, self.store.delete_container(container, delete).await)
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.store.containers(query).await
    }
}

fn place(blob: &BlobPath) -> Place {
    Place { container: blob.container.clone(), blob: Some(blob.name.clone()) }
}
