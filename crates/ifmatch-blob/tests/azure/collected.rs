//! What is left over is collected, and nothing else is.

use std::time::Duration;

use crate::support::{Fixture, fixture};

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";
const WEEK: Duration = Duration::from_hours(7 * 24);

async fn stage(fixture: &Fixture, blob: &str) {
    fixture.client.put(&format!("/box/{blob}?comp=block&blockid=AA=="), &[], "x").await.is(201);
}

#[tokio::test]
async fn blocks_are_collected_after_a_week() {
    let fixture = fixture().await;
    stage(&fixture, "old").await;
    fixture.clock.advance(Duration::from_hours(1));
    stage(&fixture, "young").await;
    fixture.clock.advance(WEEK);
    fixture.clock.advance(Duration::ZERO);
    // The older one is a week and an hour old, the younger one a week.
    assert_eq!(fixture.client.service.collect_blocks().await.expect("it works"), 1);
    fixture.client.put("/box/old?comp=blocklist", &[], LIST).await.refused(400, "InvalidBlockList");
    fixture.client.put("/box/young?comp=blocklist", &[], LIST).await.is(201);
}

#[tokio::test]
async fn lists_are_collected_with_their_blobs() {
    let fixture = fixture().await;
    let client = &fixture.client;
    for blob in ["used", "deleted", "written"] {
        stage(&fixture, blob).await;
        client.put(&format!("/box/{blob}?comp=blocklist"), &[], LIST).await.is(201);
    }
    client.delete("/box/deleted", &[]).await.is(202);
    client.upload("/box/written", "whole", &[]).await.is(201);
    assert_eq!(client.service.collect_blocks().await.expect("it works"), 0, "all are too young");
    fixture.clock.advance(WEEK * 2);
    assert_eq!(client.service.collect_blocks().await.expect("it works"), 2);
    assert_eq!(client.service.collect_blocks().await.expect("it works"), 0);
    let blocks = client.get("/box/used?comp=blocklist").await.is(200);
    assert_eq!(blocks.all("Name"), ["AA=="]);
}
