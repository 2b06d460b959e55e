//! Requests interrupted between two of their steps, and the number of listings per request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::test_util::{Act, Hook, Hooked, Step, Stop};

use crate::support::{Client, Fixture, fixture};

/// Returns a client with a hook before the steps of its requests.
fn hooked(fixture: &Fixture, hook: impl Hook) -> Client {
    fixture.client.over(Hooked {
        inner: Arc::new(fixture.store.clone()),
        hook,
    })
}

/// The blocks were deleted with their container.
#[tokio::test]
async fn a_block_list_creates_no_blob_in_a_recreated_container() {
    let fixture = fixture().await;
    let client = &fixture.client;
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
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    hooked(&fixture, hook)
        .put("/box/a?comp=blocklist", &[], list)
        .await
        .refused(400, "InvalidBlockList");
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// Each listing of the store returns hundreds of names.
#[tokio::test]
async fn a_listing_of_folders_needs_few_listings_of_the_store() {
    let fixture = fixture().await;
    let client = &fixture.client;
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
    let limited = hooked(&fixture, hook.clone());
    let page = tokio::select! {
        page = limited.get("/box?restype=container&comp=list&delimiter=%2F") => page.expect(200),
        () = hook.reached() => panic!("a fifth listing"),
    };
    assert_eq!(page.all("BlobPrefix").len(), 100);
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
    for name in [
        "a", "b", "c", "dd", "e", "f/1", "f/2", "f/3", "f/44", "f/5", "gg", "h", "i", "j",
    ] {
        fixture
            .client
            .upload(&format!("/box/{name}"), "", &[])
            .await
            .expect(201);
    }
    for (query, expected) in [
        ("", &["dd", "f/44", "gg"][..]),
        ("&delimiter=/", &["dd", "f/", "gg"]),
    ] {
        for most in [1, 2, 3, 100] {
            let client = hooked(&fixture, Deleting::default());
            let (mut names, mut marker) = (Vec::new(), String::new());
            loop {
                let target =
                    format!("/box?restype=container&comp=list&maxresults={most}{query}{marker}");
                let page = client.get(&target).await.expect(200);
                names.extend(page.all("Name").into_iter().map(str::to_owned));
                match page
                    .all("NextMarker")
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
    let stopped = hooked(&fixture, hook.clone());
    for steps in 1.. {
        client
            .put("/box/a?comp=block&blockid=AQ==", &[], "new")
            .await
            .expect(201);
        hook.allow(steps);
        let is_complete = tokio::select! {
            answer = stopped.put("/box/a?comp=blocklist", &[], blocks("AQ==")) => answer.status == 201,
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
        commit(fixture.client.clone()).await;
        let others = fixture.client.clone();
        let hook = Act::new(
            |step, container| step == Step::Open && container.as_str().contains("blocklists"),
            0..changes,
            move || commit(others.clone()),
        );
        let answer = hooked(&fixture, hook).get("/box/a?comp=blocklist").await;
        assert_eq!(answer.status, status, "{changes} changes");
    }
}

fn list_of(committed: &[&str]) -> String {
    let blocks: Vec<_> = committed
        .iter()
        .map(|id| format!("<Committed>{id}</Committed>"))
        .collect();
    format!("<BlockList>{}</BlockList>", blocks.concat())
}
