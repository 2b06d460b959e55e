//! Requests interrupted between two of their steps, and the number of listings per request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use http_body_util::BodyExt;
use ifmatch_azure::AzureDialect;
use ifmatch_blob::BlobService;
use ifmatch_blob::name::{BlobName, ContainerName};
use tower::ServiceExt;

use crate::support::{Client, accounts, fixture};
use ifmatch_blob::test_util::{Act, Hook, Hooked, Step, Stop};

/// The blocks were deleted with their container.
#[tokio::test]
async fn a_block_list_creates_no_blob_in_a_recreated_container() {
    let fixture = fixture().await;
    let client = fixture.client;
    client
        .put("/box/a?comp=block&blockid=AA==", &[], "old")
        .await
        .expect(201);
    let others = client.clone();
    let hook = Act::new(
        |step, _| step == Step::Put,
        0..1,
        move || {
            let others = others.clone();
            async move {
                others
                    .delete("/box?restype=container", &[])
                    .await
                    .expect(202);
                others
                    .put("/box?restype=container", &[], "")
                    .await
                    .expect(201);
            }
        },
    );
    let store = Hooked {
        inner: Arc::new(fixture.store),
        hook,
    };
    let service = BlobService::with_clock(Arc::new(store), fixture.clock)
        .dialect(AzureDialect::new(accounts()));
    let list = "<BlockList><Latest>AA==</Latest></BlockList>".into();
    let request = client.signed(
        Method::PUT,
        "/box/a?comp=blocklist",
        &[],
        list,
        Duration::ZERO,
    );
    let answer = service.oneshot(request).await.expect("infallible");
    let code = answer
        .headers()
        .get("x-ms-error-code")
        .and_then(|code| code.to_str().ok());
    assert_eq!(
        (answer.status().as_u16(), code),
        (400, Some("InvalidBlockList"))
    );
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// Each listing of the store returns hundreds of names.
#[tokio::test]
async fn a_listing_of_folders_needs_few_listings_of_the_store() {
    let fixture = fixture().await;
    let client = fixture.client;
    for number in 0..100 {
        client
            .upload(&format!("/box/{number:03}/a"), "x", &[])
            .await
            .expect(201);
        client
            .upload(&format!("/box/{number:03}/b"), "x", &[])
            .await
            .expect(201);
    }
    let hook = Stop::of_listings();
    hook.allow(4);
    let store = Hooked {
        inner: Arc::new(fixture.store),
        hook: hook.clone(),
    };
    let service = BlobService::with_clock(Arc::new(store), fixture.clock)
        .dialect(AzureDialect::new(accounts()));
    let target = "/box?restype=container&comp=list&delimiter=%2F";
    let request = client.signed(Method::GET, target, &[], "".into(), Duration::ZERO);
    let answer = tokio::select! {
        answer = service.oneshot(request) => answer.expect("infallible"),
        () = hook.reached() => panic!("a fifth listing"),
    };
    let body = answer.into_body().collect().await.expect("a body");
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
    assert_eq!(text.matches("<BlobPrefix>").count(), 100);
}

/// Omits blobs with a name of one letter from listings.
#[derive(Clone, Default)]
struct Deleting(Arc<AtomicUsize>);

#[async_trait]
impl Hook for Deleting {
    async fn before(&self, step: Step, _: &ContainerName) {
        let listed = self
            .0
            .fetch_add(usize::from(step == Step::List), Ordering::SeqCst);
        assert!(listed < 100, "the listing does not advance");
    }

    fn lists(&self, name: &BlobName) -> bool {
        name.as_str()
            .rsplit('/')
            .next()
            .is_some_and(|last| last.len() > 1)
    }
}

/// An object store lists deleted blobs and then finds that they are none.
#[tokio::test]
async fn a_listing_passes_pages_of_blobs_deleted_meanwhile() {
    let fixture = fixture().await;
    let client = fixture.client;
    for name in [
        "a", "b", "c", "dd", "e", "f/1", "f/2", "f/3", "f/44", "f/5", "gg", "h", "i", "j",
    ] {
        client
            .upload(&format!("/box/{name}"), "", &[])
            .await
            .expect(201);
    }
    for (query, expected) in [
        ("", &["dd", "f/44", "gg"][..]),
        ("&delimiter=/", &["dd", "f/", "gg"]),
    ] {
        for most in [1, 2, 3, 100] {
            let store = Hooked {
                inner: Arc::new(fixture.store.clone()),
                hook: Deleting::default(),
            };
            let service = BlobService::with_clock(Arc::new(store), fixture.clock.clone());
            let service = service.dialect(AzureDialect::new(accounts()));
            let (mut names, mut marker) = (Vec::new(), String::new());
            loop {
                let target =
                    format!("/box?restype=container&comp=list&maxresults={most}{query}{marker}");
                let request = client.signed(Method::GET, &target, &[], "".into(), Duration::ZERO);
                let answer = service.clone().oneshot(request).await.expect("infallible");
                let body = answer
                    .into_body()
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes();
                let text = std::str::from_utf8(&body).expect("XML");
                let between = |start: &str, end: &str| {
                    let texts = text
                        .split(start)
                        .skip(1)
                        .filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()));
                    texts.collect::<Vec<_>>()
                };
                names.extend(between("<Name>", "</Name>"));
                match between("<NextMarker>", "<")
                    .first()
                    .filter(|next| !next.is_empty())
                {
                    Some(next) => marker = format!("&marker={next}"),
                    None => break,
                }
            }
            assert_eq!(names, expected, "{most} {query}");
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
    client
        .put("/box/a?comp=block&blockid=AA==", &[], "old")
        .await
        .expect(201);
    client
        .put("/box/a?comp=blocklist", &[], blocks("AA=="))
        .await
        .expect(201);
    let hook = Stop::new(|_, _| true, usize::MAX);
    let store = Hooked {
        inner: Arc::new(fixture.store.clone()),
        hook: hook.clone(),
    };
    let service = BlobService::with_clock(Arc::new(store), fixture.clock.clone())
        .dialect(AzureDialect::new(accounts()));
    for steps in 1.. {
        client
            .put("/box/a?comp=block&blockid=AQ==", &[], "new")
            .await
            .expect(201);
        hook.allow(steps);
        let request = client.signed(
            Method::PUT,
            "/box/a?comp=blocklist",
            &[],
            blocks("AQ==").into(),
            Duration::ZERO,
        );
        let is_complete = tokio::select! {
            answer = service.clone().oneshot(request) => answer.expect("infallible").status() == 201,
            () = hook.reached() => false,
        };
        let (bytes, list) = (
            client.get("/box/a").await.expect(200),
            client.get("/box/a?comp=blocklist").await.expect(200),
        );
        let known = [("old", vec!["AA=="]), ("new", vec!["AQ=="])];
        assert!(
            known.contains(&(bytes.text(), list.all("Name"))),
            "{steps} steps: {} {}",
            bytes.text(),
            list.text()
        );
        client
            .put("/box/a?comp=blocklist", &[], list_of(&list.all("Name")))
            .await
            .expect(201);
        assert_eq!(client.get("/box/a").await.expect(200).text(), bytes.text());
        if is_complete {
            assert!(steps > 3, "the request has more steps");
            break;
        }
        client
            .put("/box/a?comp=block&blockid=AA==", &[], "old")
            .await
            .expect(201);
        client
            .put("/box/a?comp=blocklist", &[], blocks("AA=="))
            .await
            .expect(201);
    }
}

/// Each new version removes the list of the one before.
#[tokio::test]
async fn a_block_list_is_found_after_some_changes_of_the_blob_or_refused() {
    for (changes, status) in [(4, 200), (100, 503)] {
        let fixture = fixture().await;
        let client = fixture.client;
        let commit = async |client: Client| {
            client
                .put("/box/a?comp=block&blockid=AA==", &[], "x")
                .await
                .expect(201);
            let list = "<BlockList><Latest>AA==</Latest></BlockList>";
            client
                .put("/box/a?comp=blocklist", &[], list)
                .await
                .expect(201);
        };
        commit(client.clone()).await;
        let others = client.clone();
        let hook = Act::new(
            |step, container| step == Step::Open && container.as_str().contains("blocklists"),
            0..changes,
            move || commit(others.clone()),
        );
        let store = Hooked {
            inner: Arc::new(fixture.store),
            hook,
        };
        let service = BlobService::with_clock(Arc::new(store), fixture.clock)
            .dialect(AzureDialect::new(accounts()));
        let target = "/box/a?comp=blocklist";
        let request = client.signed(Method::GET, target, &[], "".into(), Duration::ZERO);
        let answer = service.oneshot(request).await.expect("infallible");
        assert_eq!(answer.status(), status, "{changes} changes");
    }
}

fn list_of(committed: &[&str]) -> String {
    let blocks: Vec<_> = committed
        .iter()
        .map(|id| format!("<Committed>{id}</Committed>"))
        .collect();
    format!("<BlockList>{}</BlockList>", blocks.concat())
}
