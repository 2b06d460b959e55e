//! Requests interrupted between two of their steps, and the number of listings per request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use http::Method;
use http_body_util::BodyExt;
use ifmatch_azure::AzureDialect;
use ifmatch_blob::BlobService;
use ifmatch_blob::name::{BlobName, ContainerName};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::support::{accounts, fixture};
use ifmatch_blob::test_util::{Hook, Hooked, Step};

/// Runs an action once, right before a blob is written, and counts listings.
#[derive(Clone, Default)]
struct Interposed {
    act: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
    listed: Arc<AtomicUsize>,
}

#[async_trait]
impl Hook for Interposed {
    async fn before(&self, step: Step, _: &ContainerName) {
        if step == Step::List {
            self.listed.fetch_add(1, Ordering::SeqCst);
        }
        let act = if step == Step::Put { self.act.lock().expect("no panic").take() } else { None };
        if let Some(act) = act {
            act.await;
        }
    }
}

/// The blocks were deleted with their container.
#[tokio::test]
async fn a_block_list_creates_no_blob_in_a_recreated_container() {
    let fixture = fixture().await;
    let client = fixture.client;
    client.put("/box/a?comp=block&blockid=AA==", &[], "old").await.expect(201);
    let others = client.clone();
    let act = Box::pin(async move {
        others.delete("/box?restype=container", &[]).await.expect(202);
        others.put("/box?restype=container", &[], "").await.expect(201);
    });
    let hook = Interposed { act: Arc::new(Mutex::new(Some(act))), ..Interposed::default() };
    let store = Hooked { inner: Arc::new(fixture.store), hook };
    let service = BlobService::with_clock(Arc::new(store), fixture.clock).dialect(AzureDialect::new(accounts()));
    let list = "<BlockList><Latest>AA==</Latest></BlockList>".into();
    let request = client.signed(Method::PUT, "/box/a?comp=blocklist", &[], list, Duration::ZERO);
    let answer = service.oneshot(request).await.expect("infallible");
    let code = answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok());
    assert_eq!((answer.status().as_u16(), code), (400, Some("InvalidBlockList")));
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// Each listing of the store returns hundreds of names.
#[tokio::test]
async fn a_listing_of_folders_needs_few_listings_of_the_store() {
    let fixture = fixture().await;
    let client = fixture.client;
    for number in 0..100 {
        client.upload(&format!("/box/{number:03}/a"), "x", &[]).await.expect(201);
        client.upload(&format!("/box/{number:03}/b"), "x", &[]).await.expect(201);
    }
    let listed = Arc::new(AtomicUsize::new(0));
    let hook = Interposed { listed: Arc::clone(&listed), ..Interposed::default() };
    let store = Hooked { inner: Arc::new(fixture.store), hook };
    let service = BlobService::with_clock(Arc::new(store), fixture.clock).dialect(AzureDialect::new(accounts()));
    let target = "/box?restype=container&comp=list&delimiter=%2F";
    let request = client.signed(Method::GET, target, &[], "".into(), Duration::ZERO);
    let body = service.oneshot(request).await.expect("infallible").into_body().collect().await.expect("a body");
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
    assert_eq!(text.matches("<BlobPrefix>").count(), 100);
    assert!(listed.load(Ordering::SeqCst) < 5, "{listed:?} listings");
}

/// Omits blobs with a name of one letter from listings.
#[derive(Clone, Default)]
struct Deleting(Interposed);

#[async_trait]
impl Hook for Deleting {
    async fn before(&self, step: Step, container: &ContainerName) {
        self.0.before(step, container).await;
        assert!(self.0.listed.load(Ordering::SeqCst) < 100, "the listing does not advance");
    }

    fn lists(&self, name: &BlobName) -> bool {
        name.as_str().rsplit('/').next().is_some_and(|last| last.len() > 1)
    }
}

/// An object store lists deleted blobs and then finds that they are none.
#[tokio::test]
async fn a_listing_passes_pages_of_blobs_deleted_meanwhile() {
    let fixture = fixture().await;
    let client = fixture.client;
    for name in ["a", "b", "c", "dd", "e", "f/1", "f/2", "f/3", "f/44", "f/5", "gg", "h", "i", "j"] {
        client.upload(&format!("/box/{name}"), "", &[]).await.expect(201);
    }
    for (query, expected) in [("", &["dd", "f/44", "gg"][..]), ("&delimiter=/", &["dd", "f/", "gg"])] {
        for most in [1, 2, 3, 100] {
            let store = Hooked { inner: Arc::new(fixture.store.clone()), hook: Deleting::default() };
            let service = BlobService::with_clock(Arc::new(store), fixture.clock.clone());
            let service = service.dialect(AzureDialect::new(accounts()));
            let (mut names, mut marker) = (Vec::new(), String::new());
            loop {
                let target = format!("/box?restype=container&comp=list&maxresults={most}{query}{marker}");
                let request = client.signed(Method::GET, &target, &[], "".into(), Duration::ZERO);
                let answer = service.clone().oneshot(request).await.expect("infallible");
                let body = answer.into_body().collect().await.expect("a body").to_bytes();
                let text = std::str::from_utf8(&body).expect("XML");
                let between = |start: &str, end: &str| {
                    let texts = text.split(start).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()));
                    texts.collect::<Vec<_>>()
                };
                names.extend(between("<Name>", "</Name>"));
                match between("<NextMarker>", "<").first().filter(|next| !next.is_empty()) {
                    Some(next) => marker = format!("&marker={next}"),
                    None => break,
                }
            }
            assert_eq!(names, expected, "{most} {query}");
        }
    }
}

/// Ends a request before one of its steps.
#[derive(Clone, Default)]
struct Kill {
    left: Arc<AtomicUsize>,
    ended: Arc<Notify>,
}

#[async_trait]
impl Hook for Kill {
    async fn before(&self, _: Step, _: &ContainerName) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.ended.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// The blob and its list of blocks are one change: whichever step is the last one, the blob is the old one with its blocks, or the
/// new one with its blocks.
#[tokio::test]
async fn a_block_list_that_is_cut_off_leaves_a_blob_with_its_blocks() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let blocks = |id: &str| format!("<BlockList><Latest>{id}</Latest></BlockList>");
    client.put("/box/a?comp=block&blockid=AA==", &[], "old").await.expect(201);
    client.put("/box/a?comp=blocklist", &[], blocks("AA==")).await.expect(201);
    let hook = Kill::default();
    let store = Hooked { inner: Arc::new(fixture.store.clone()), hook: hook.clone() };
    let service =
        BlobService::with_clock(Arc::new(store), fixture.clock.clone()).dialect(AzureDialect::new(accounts()));
    for steps in 1.. {
        client.put("/box/a?comp=block&blockid=AQ==", &[], "new").await.expect(201);
        hook.left.store(steps, Ordering::SeqCst);
        let request = client.signed(Method::PUT, "/box/a?comp=blocklist", &[], blocks("AQ==").into(), Duration::ZERO);
        let is_complete = tokio::select! {
            answer = service.clone().oneshot(request) => answer.expect("infallible").status() == 201,
            () = hook.ended.notified() => false,
        };
        let (bytes, list) =
            (client.get("/box/a").await.expect(200), client.get("/box/a?comp=blocklist").await.expect(200));
        let known = [("old", vec!["AA=="]), ("new", vec!["AQ=="])];
        assert!(known.contains(&(bytes.text(), list.all("Name"))), "{steps} steps: {} {}", bytes.text(), list.text());
        client.put("/box/a?comp=blocklist", &[], list_of(&list.all("Name"))).await.expect(201);
        assert_eq!(client.get("/box/a").await.expect(200).text(), bytes.text());
        if is_complete {
            assert!(steps > 3, "the request has more steps");
            break;
        }
        client.put("/box/a?comp=block&blockid=AA==", &[], "old").await.expect(201);
        client.put("/box/a?comp=blocklist", &[], blocks("AA==")).await.expect(201);
    }
}

fn list_of(committed: &[&str]) -> String {
    let blocks: Vec<_> = committed.iter().map(|id| format!("<Committed>{id}</Committed>")).collect();
    format!("<BlockList>{}</BlockList>", blocks.concat())
}
