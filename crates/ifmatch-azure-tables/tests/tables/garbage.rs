//! Garbage collection of the entities of deleted tables.

use serde_json::json;

use crate::interposed::Moment;
use crate::support::{Client, fixture};

#[tokio::test]
async fn only_entities_of_deleted_tables_are_collected() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let reports = Client { account: "reports", ..client.clone() };
    for tables in [client, &reports] {
        tables.create("other").await;
    }
    reports.create("tab").await;
    for row in 0..3 {
        client.insert_as("p", &row.to_string(), json!({})).await.is(204);
        reports.insert_as("p", &row.to_string(), json!({})).await.is(204);
    }
    assert_eq!(client.service.collect().await.expect("the store works"), 0);
    client.send("DELETE", "/Tables('tab')", &[], "").await.is(204);
    client.create("tab").await;
    client.insert_as("p", "young", json!({})).await.is(204);
    assert_eq!(client.service.collect().await.expect("the store works"), 3);
    assert_eq!(client.service.collect().await.expect("the store works"), 0);
    assert_eq!(client.get("/tab()").await.json()["value"].as_array().map(Vec::len), Some(1));
    assert_eq!(reports.get("/tab()").await.json()["value"].as_array().map(Vec::len), Some(3));
}

/// An insert that ends after its table was deleted leaves an entity for the next collection.
#[tokio::test]
async fn an_entity_inserted_late_is_collected_later() {
    let fixture = fixture().await;
    let interrupted = fixture.interrupted(Moment::Write, 1, |client| async move {
        client.send("DELETE", "/Tables('tab')", &[], "").await.is(204);
        assert_eq!(client.service.collect().await.expect("the store works"), 0);
    });
    interrupted.insert(json!({})).await.is(204);
    assert_eq!(fixture.client.service.collect().await.expect("the store works"), 1);
}

/// A table is created and filled during a collection.
#[tokio::test]
async fn a_collection_spares_tables_created_meanwhile() {
    for moment in [Moment::List, Moment::Write] {
        let fixture = fixture().await;
        fixture.client.insert(json!({})).await.is(204);
        fixture.client.send("DELETE", "/Tables('tab')", &[], "").await.is(204);
        let interrupted = fixture.interrupted(moment, 1, |client| async move {
            client.create("tab").await;
            client.insert(json!({ "young": 1 })).await.is(204);
        });
        assert_eq!(interrupted.service.collect().await.expect("the store works"), 1, "{moment:?}");
        assert_eq!(fixture.client.properties().await, json!({ "young": 1 }), "{moment:?}");
    }
}
