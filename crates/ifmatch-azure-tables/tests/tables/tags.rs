//! Tags and timestamps, and the separation of accounts.

use std::time::Duration;

use serde_json::json;

use crate::support::{Client, ENTITY, fixture};

#[tokio::test]
async fn a_tag_is_the_time_of_the_write() {
    let fixture = fixture().await;
    let inserted = fixture.client.insert(json!({})).await;
    assert_eq!(inserted.tag(), "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\"");
    let read = fixture.client.get(ENTITY).await;
    assert_eq!(read.json()["Timestamp"], "2020-09-13T12:26:40.5000000Z");
    assert_eq!((read.tag(), read.json()["odata.etag"].as_str()), (inserted.tag(), Some(inserted.tag().as_str())));
    fixture.clock.advance(Duration::from_micros(1_500_001));
    let replaced = fixture.client.write("PUT", None, json!({})).await;
    assert_eq!(replaced.tag(), "W/\"datetime'2020-09-13T12%3A26%3A42.0000010Z'\"");
}

#[tokio::test]
async fn tags_are_unique_on_a_stopped_clock() {
    let client = fixture().await.client;
    let mut tags = std::collections::HashSet::new();
    for _ in 0..5 {
        assert!(tags.insert(client.insert(json!({})).await.tag()));
        assert!(tags.insert(client.write("PUT", None, json!({})).await.tag()));
        assert!(tags.insert(client.write("MERGE", Some("*"), json!({})).await.tag()));
        client.delete("*").await.expect(204);
    }
}

#[tokio::test]
async fn accounts_have_separate_tables() {
    let fixture = fixture().await;
    fixture.client.insert(json!({ "a": 1 })).await.expect(204);
    let reports = Client { account: "reports", ..fixture.client.clone() };
    assert_eq!(reports.get("/Tables").await.json()["value"], json!([]));
    reports.get(ENTITY).await.refused(404, "TableNotFound");
    reports.create("tab").await;
    reports.get(ENTITY).await.refused(404, "ResourceNotFound");
    reports.send("DELETE", "/Tables('tab')", &[], "").await.expect(204);
    assert_eq!(fixture.client.properties().await, json!({ "a": 1 }));
}
