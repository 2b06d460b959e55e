//! A store in which others act between two steps of a request.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use ifmatch_blob::BlobStore;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobEntry, ContainerEntry, ContainerInfo, Delete, LeaseRequest, Leased, ListQuery, Opened, Page, Put, Reading,
    SetHeaders, StoreError, Written,
};

use crate::support::{Client, Fixture, Store};

/// When the others act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before an entity is opened.
    Open,
    /// Before an entity is written or deleted.
    Write,
    /// Before entities are listed.
    List,
    /// Before a table is created or deleted.
    Table,
}

type Act = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// A store in which others act at a moment.
#[derive(Clone)]
pub(crate) struct Interposed {
    inner: Store,
    moment: Moment,
    act: Arc<Mutex<(usize, Act)>>,
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interposed").field("moment", &self.moment).finish_non_exhaustive()
    }
}

impl Fixture {
    /// A client to whose requests something happens in between, so many times; the others use the plain client.
    pub(crate) fn interrupted<F>(
        &self,
        moment: Moment,
        times: usize,
        act: impl Fn(Client) -> F + Send + 'static,
    ) -> Client<Interposed>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = self.client.clone();
        let act: Act = Box::new(move || Box::pin(act(client.clone())));
        let act = Arc::new(Mutex::new((times, act)));
        Client::over(Interposed { inner: self.store.clone(), moment, act }, &self.clock)
    }
}

impl Interposed {
    async fn reached(&self, moment: Moment, container: &ContainerName) {
        let moment = match moment {
            Moment::Write if container.as_str().starts_with("-tables") => Moment::Table,
            Moment::Open | Moment::List if container.as_str().starts_with("-tables") => return,
            moment => moment,
        };
        let acting = {
            let mut act = self.act.lock().expect("no panic");
            let due = moment == self.moment && act.0 > 0;
            act.0 -= usize::from(due);
            due.then(|| (act.1)())
        };
        if let Some(acting) = acting {
            acting.await;
        }
    }
}

impl BlobStore for Interposed {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.reached(Moment::Open, &blob.container).await;
        self.inner.open(blob, reading).await
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        self.reached(Moment::Write, &blob.container).await;
        self.inner.put(blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.reached(Moment::Write, &blob.container).await;
        self.inner.delete(blob, delete).await
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.reached(Moment::List, container).await;
        self.inner.list(container, query).await
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

    async fn containers(&self, query: &ListQuery) -> Result<Page<ContainerEntry>, StoreError> {
        self.inner.containers(query).await
    }
}
