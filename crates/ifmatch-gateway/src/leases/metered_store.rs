//! A store that updates the metrics of leases.

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

use super::listing::LeaseTarget;
use super::metrics::LeaseMetrics;

/// A store that updates [`LeaseMetrics`].
#[derive(Clone)]
pub(crate) struct MeteredStore {
    store: Arc<dyn BlobStore>,
    metrics: Arc<LeaseMetrics>,
}

impl MeteredStore {
    /// Updates `metrics` with the operations on `store`.
    pub(crate) fn new(store: Arc<dyn BlobStore>, metrics: Arc<LeaseMetrics>) -> Self {
        Self { store, metrics }
    }

    /// Removes expired leases from the metrics.
    pub(crate) fn expire_leases(&self) {
        self.metrics.expire(SystemClock.now());
    }

    /// Counts a rejection because of a lease.
    pub(crate) fn refused(&self) {
        self.metrics.refused();
    }

    fn record(
        &self,
        target: LeaseTarget,
        request: &LeaseRequest,
        result: Result<Leased, StoreError>,
    ) -> Result<Leased, StoreError> {
        let leased = result?;
        self.metrics.record(target, request.action, &leased.receipt, SystemClock.now());
        Ok(leased)
    }

    fn record_deletion(&self, target: &LeaseTarget, result: Result<(), StoreError>) -> Result<(), StoreError> {
        result?;
        self.metrics.record_deletion(target, SystemClock.now());
        Ok(())
    }
}

#[async_trait]
impl BlobStore for MeteredStore {
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
        self.record_deletion(&target(blob), self.store.delete(blob, delete).await)
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.store.list(container, query).await
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        self.store.set_headers(blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.record(target(blob), &request.clone(), self.store.lease(blob, request).await)
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
        self.record(LeaseTarget { container: container.clone(), blob: None }, &request, result)
    }

    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        let target = LeaseTarget { container: container.clone(), blob: None };
        self.record_deletion(&target, self.store.delete_container(container, delete).await)
    }

    async fn delete_empty_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        let target = LeaseTarget { container: container.clone(), blob: None };
        self.record_deletion(&target, self.store.delete_empty_container(container, delete).await)
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.store.containers(query).await
    }
}

fn target(blob: &BlobPath) -> LeaseTarget {
    LeaseTarget { container: blob.container.clone(), blob: Some(blob.name.clone()) }
}
