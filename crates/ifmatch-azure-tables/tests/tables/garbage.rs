//! Garbage collection of the entities of deleted tables.

use std::sync::Arc;

use ifmatch_blob::BlobStore;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::ListQuery;
use ifmatch_blob::test_util::{Hooked, Stop};
use serde_json::json;

use crate::support::{Client, fixture, lists, writes};

#[tokio::test]
async fn only_entities_of_deleted_tables_are_collected() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let reports = Client {
        account: "reports",
        ..client.clone()
    };
    for tables in [client, &reports] {
        tables.create("other").await;
    }
    reports.create("tab").await;
    for row in 0..3 {
        client
            .insert_as("p", &row.to_string(), json!({}))
            .await
            .expect(204);
        reports
            .insert_as("p", &row.to_string(), json!({}))
            .await
            .expect(204);
    }
    assert_eq!(client.service.collect().await.expect("the store works"), 0);
    client
        .send("DELETE", "/Tables('tab')", &[], "")
        .await
        .expect(204);
    client.create("tab").await;
    client.insert_as("p", "young", json!({})).await.expect(204);
    assert_eq!(client.service.collect().await.expect("the store works"), 3);
    assert_eq!(client.service.collect().await.expect("the store works"), 0);
    assert_eq!(
        client.get("/tab()").await.json()["value"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        reports.get("/tab()").await.json()["value"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

/// An insert that ends after its table was deleted leaves an entity for the next collection.
#[tokio::test]
async fn an_entity_inserted_late_is_collected_later() {
    let fixture = fixture().await;
    let interrupted = fixture.interrupted(writes, 0..1, |client| async move {
        client
            .send("DELETE", "/Tables('tab')", &[], "")
            .await
            .expect(204);
        assert_eq!(client.service.collect().await.expect("the store works"), 0);
    });
    interrupted.insert(json!({})).await.expect(204);
    assert_eq!(
        fixture
            .client
            .service
            .collect()
            .await
            .expect("the store works"),
        1
    );
}

/// A table is created and filled during a collection.
#[tokio::test]
async fn a_collection_spares_tables_created_meanwhile() {
    for (name, moment) in [("list", lists as fn(_, &_) -> _), ("write", writes)] {
        let fixture = fixture().await;
        fixture.client.insert(json!({})).await.expect(204);
        fixture
            .client
            .send("DELETE", "/Tables('tab')", &[], "")
            .await
            .expect(204);
        let interrupted = fixture.interrupted(moment, 0..1, |client| async move {
            client.create("tab").await;
            client.insert(json!({ "young": 1 })).await.expect(204);
        });
        assert_eq!(
            interrupted
                .service
                .collect()
                .await
                .expect("the store works"),
            1,
            "before a {name}"
        );
        assert_eq!(
            fixture.client.properties().await,
            json!({ "young": 1 }),
            "before a {name}"
        );
    }
}

#[tokio::test]
async fn an_interrupted_sweep_is_continued_by_the_next() {
    let fixture = fixture().await;
    let entity = json!({ "PartitionKey": "p", "RowKey": "r" }).to_string();
    for number in 0..61 {
        let table = format!("number{number}");
        fixture.client.create(&table).await;
        fixture
            .client
            .send(
                "POST",
                &format!("/{table}"),
                &[("prefer", "return-no-content")],
                &entity,
            )
            .await
            .expect(204);
    }
    for number in (0..61).step_by(2) {
        fixture
            .client
            .send("DELETE", &format!("/Tables('number{number}')"), &[], "")
            .await
            .expect(204);
    }
    let hook = Stop::of_listings();
    let hooked = Hooked {
        inner: Arc::new(fixture.store.clone()),
        hook: hook.clone(),
    };
    let service = Client::over(hooked, &fixture.clock).service;
    // A whole sweep takes more: 62 listings of identities, 4 of tables, and 31 of deleted tables.
    for _ in 0..4 {
        hook.allow(60);
        tokio::select! {
            done = service.collect() => drop(done.expect("the store works")),
            () = hook.reached() => {}
        }
    }
    let entities = ContainerName::internal("entities.photos").expect("valid");
    let query = ListQuery::first(100);
    let left = fixture
        .store
        .list(&entities, &query)
        .await
        .expect("the store works")
        .expect("it exists");
    assert_eq!(left.items.len(), 30);
    hook.allow(1000);
    assert_eq!(service.collect().await.expect("the store works"), 0);
}
