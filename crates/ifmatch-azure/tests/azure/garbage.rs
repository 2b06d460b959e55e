//! Garbage collection of blocks and block lists.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ifmatch_azure::collect_blocks;
use ifmatch_blob::BlobService;

use crate::support::{Fixture, fixture};
use ifmatch_blob::test_util::{Hooked, Stop};

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";
const WEEK: Duration = Duration::from_hours(7 * 24);

async fn stage(fixture: &Fixture, blob: &str) {
    fixture.client.put(&format!("/box/{blob}?comp=block&blockid=AA=="), &[], "x").await.expect(201);
}

#[tokio::test]
async fn blocks_are_collected_after_a_week() {
    let fixture = fixture().await;
    stage(&fixture, "old").await;
    fixture.clock.advance(Duration::from_hours(1));
    stage(&fixture, "young").await;
    fixture.clock.advance(WEEK);
    fixture.clock.advance(Duration::ZERO);
    // The ages are a week and an hour, and exactly a week.
    assert_eq!(collect_blocks(fixture.client.service.context()).await.expect("the store works"), 1);
    fixture.client.put("/box/old?comp=blocklist", &[], LIST).await.refused(400, "InvalidBlockList");
    fixture.client.put("/box/young?comp=blocklist", &[], LIST).await.expect(201);
}

#[tokio::test]
async fn lists_are_collected_with_their_blobs() {
    let fixture = fixture().await;
    let client = &fixture.client;
    for blob in ["used", "deleted", "written"] {
        stage(&fixture, blob).await;
        client.put(&format!("/box/{blob}?comp=blocklist"), &[], LIST).await.expect(201);
    }
    client.delete("/box/deleted", &[]).await.expect(202);
    client.upload("/box/written", "whole", &[]).await.expect(201);
    assert_eq!(collect_blocks(client.service.context()).await.expect("the store works"), 0, "all are too recent");
    fixture.clock.advance(WEEK * 2);
    assert_eq!(collect_blocks(client.service.context()).await.expect("the store works"), 2);
    assert_eq!(collect_blocks(client.service.context()).await.expect("the store works"), 0);
    let blocks = client.get("/box/used?comp=blocklist").await.expect(200);
    assert_eq!(blocks.all("Name"), ["AA=="]);
}

#[tokio::test]
async fn an_interrupted_sweep_is_continued_by_the_next() {
    let fixture = fixture().await;
    stage(&fixture, "old").await;
    fixture.clock.advance(WEEK * 2);
    // More than two pages of recent blocks, listed before the old one.
    fixture.client.put("/aaa?restype=container", &[], "").await.expect(201);
    for number in 0..120 {
        let id = STANDARD.encode(format!("{number:03}"));
        fixture.client.put(&format!("/aaa/young?comp=block&blockid={id}"), &[], "x").await.expect(201);
    }
    let hook = Stop::of_listings();
    let service =
        BlobService::with_clock(Arc::new(Hooked { inner: Arc::new(fixture.store), hook: hook.clone() }), fixture.clock);
    let mut removed = Vec::new();
    for _ in 0..2 {
        hook.allow(2);
        tokio::select! {
            done = collect_blocks(service.context()) => removed.push(done.expect("the store works")),
            () = hook.reached() => {}
        }
    }
    assert_eq!(removed, [1], "the second invocation reaches the old block and completes the sweep");
    hook.allow(9);
    assert_eq!(collect_blocks(service.context()).await.expect("the store works"), 0);
    assert_eq!(hook.left(), 5, "the next sweep starts over: three pages of blocks, one of lists");
}
