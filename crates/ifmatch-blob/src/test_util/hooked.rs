//! A store in which something happens right before a step of a request.

use std::sync::Arc;

use async_trait::async_trait;

use crate::BlobStore;
use crate::headers::BlobHeaders;
use crate::name::{BlobName, BlobPath, ContainerName};
use crate::store::{
    BlobEntry, ContainerEntry, ContainerInfo, Delete, LeaseRequest, Leased, ListQuery, Opened, Page, Peek, Put,
    Reading, SetHeaders, StoreError, Written,
};

/// A step with a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`BlobStore::open`]
    Open,
    /// [`BlobStore::put`]
    Put,
    /// [`BlobStore::delete`]
    Delete,
    /// [`BlobStore::list`]
    List,
}

/// A test's code between the steps of a request.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Runs right before a step in this container.
    async fn before(&self, step: Step, container: &ContainerName);

    /// Returns `false` to omit a blob from its page of a listing, as if it had been deleted meanwhile.
    fn lists(&self, _: &BlobName) -> bool {
        true
    }
}

/// A store with a hook before its steps.
#[derive(Clone)]
pub struct Hooked<H> {
    /// The store.
    pub inner: Arc<dyn BlobStore>,
    /// The hook.
    pub hook: H,
}

#[async_trait]
impl<H: Hook> BlobStore for Hooked<H> {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.hook.before(Step::Open, &blob.container).await;
        self.inner.open(blob, reading).await
    }

    fn peek(&self) -> Option<&dyn Peek> {
        None
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        self.hook.before(Step::Put, &blob.container).await;
        self.inner.put(blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.hook.before(Step::Delete, &blob.container).await;
        self.inner.delete(blob, delete).await
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.hook.before(Step::List, container).await;
        let mut page = self.inner.list(container, query).await?;
        if let Some(page) = &mut page {
            page.items.retain(|entry| self.hook.lists(&entry.name));
        }
        Ok(page)
    }

    async fn set_headers(&self, blob: &BlobPath, set: SetHeaders) -> Result<Written, StoreError> {
        self.inner.set_headers(blob, set).await
    }

    async fn lease(&self, blob: &BlobPath, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.inner.lease(blob, request).await
    }

    async fn create_container(
        &self,
        container: &ContainerName,
        headers: BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.inner.create_container(container, headers).await
    }

    async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        self.inner.container(container).await
    }

    async fn set_container(&self, container: &ContainerName, set: SetHeaders) -> Result<ContainerInfo, StoreError> {
        self.inner.set_container(container, set).await
    }

    async fn lease_container(&self, container: &ContainerName, request: LeaseRequest) -> Result<Leased, StoreError> {
        self.inner.lease_container(container, request).await
    }

    async fn delete_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        self.inner.delete_container(container, delete).await
    }

    async fn delete_empty_container(&self, container: &ContainerName, delete: Delete) -> Result<(), StoreError> {
        self.inner.delete_empty_container(container, delete).await
    }

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.inner.containers(query).await
    }
}
