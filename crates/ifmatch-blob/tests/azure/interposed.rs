//! What others do between two steps of a request, and how often a request asks the store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Method;
use http_body_util::BodyExt;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobEntry, ContainerEntry, ContainerInfo, Delete, LeaseRequest, Leased, ListQuery, Opened, Page, Put, Reading,
    SetHeaders, StoreError, Written,
};
use ifmatch_blob::{BlobService, BlobStore};
use tower::ServiceExt;

use crate::support::{Store, accounts, fixture};

/// A store in which something happens once, right before a blob is written.
#[derive(Clone)]
struct Interposed {
    inner: Store,
    act: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
    listed: Arc<AtomicUsize>,
}

impl BlobStore for Interposed {
    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.inner.open(blob, reading).await
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        let act = self.act.lock().expect("no panic").take();
        if let Some(act) = act {
            act.await;
        }
        self.inner.put(blob, put).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.inner.delete(blob, delete).await
    }

    async fn list(&self, container: &ContainerName, query: &ListQuery) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.listed.fetch_add(1, Ordering::SeqCst);
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

/// The blocks went with the container for which they were staged.
#[tokio::test]
async fn a_list_makes_no_blob_in_a_container_that_is_created_meanwhile() {
    let fixture = fixture().await;
    let client = fixture.client;
    client.put("/box/a?comp=block&blockid=AA==", &[], "old").await.is(201);
    let others = client.clone();
    let act = Box::pin(async move {
        others.delete("/box?restype=container", &[]).await.is(202);
        others.put("/box?restype=container", &[], "").await.is(201);
    });
    let store = Interposed { inner: fixture.store, act: Arc::new(Mutex::new(Some(act))), listed: Arc::default() };
    let service = BlobService::with_clock(store, fixture.clock).accounts(accounts());
    let list = "<BlockList><Latest>AA==</Latest></BlockList>".into();
    let request = client.signed(Method::PUT, "/box/a?comp=blocklist", &[], list, Duration::ZERO);
    let answer = service.oneshot(request).await.expect("infallible");
    let code = answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok());
    assert_eq!((answer.status().as_u16(), code), (400, Some("InvalidBlockList")));
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// Each question is answered with hundreds of names, of which most would be thrown away.
#[tokio::test]
async fn a_listing_of_folders_does_not_ask_for_each() {
    let fixture = fixture().await;
    let client = fixture.client;
    for number in 0..100 {
        client.upload(&format!("/box/{number:03}/a"), "x", &[]).await.is(201);
        client.upload(&format!("/box/{number:03}/b"), "x", &[]).await.is(201);
    }
    let listed = Arc::new(AtomicUsize::new(0));
    let store = Interposed { inner: fixture.store, act: Arc::default(), listed: Arc::clone(&listed) };
    let service = BlobService::with_clock(store, fixture.clock).accounts(accounts());
    let target = "/box?restype=container&comp=list&delimiter=%2F";
    let request = client.signed(Method::GET, target, &[], "".into(), Duration::ZERO);
    let body = service.oneshot(request).await.expect("infallible").into_body().collect().await.expect("a body");
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
    assert_eq!(text.matches("<BlobPrefix>").count(), 100);
    assert!(listed.load(Ordering::SeqCst) < 5, "{listed:?} questions");
}
