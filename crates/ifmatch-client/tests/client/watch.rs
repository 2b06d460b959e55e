//! Watching a document, and the counter.

use futures_util::future::join_all;

use crate::store::Store;

#[tokio::test(start_paused = true)]
async fn a_watch_shows_creation_changes_and_deletion() {
    let store = Store::default();
    let client = store.client();
    let mut limit = client.json::<u32>("limit").watch().await.unwrap();
    assert!(limit.borrow_and_update().is_none());
    let writer = store.client().json::<u32>("limit");
    for value in [1, 2] {
        writer.update(|limit| *limit = value).await.unwrap();
        limit.changed().await.unwrap();
        assert_eq!(limit.borrow_and_update().as_ref().unwrap().value, value);
    }
    let version = writer.get().await.unwrap().unwrap().version;
    store
        .client()
        .backend()
        .delete("limit", &version)
        .await
        .unwrap();
    limit.changed().await.unwrap();
    assert!(limit.borrow_and_update().is_none());
}

#[tokio::test(start_paused = true)]
async fn content_of_another_type_does_not_replace_the_last_value() {
    let store = Store::default();
    store.client().json::<u32>("limit").create(1).await.unwrap();
    let mut limit = store.client().json::<u32>("limit").watch().await.unwrap();
    store
        .client()
        .json::<serde_json::Value>("limit")
        .update(|value| *value = "broken".into())
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    assert_eq!(limit.borrow_and_update().as_ref().unwrap().value, 1);
    store
        .client()
        .json::<serde_json::Value>("limit")
        .update(|value| *value = 3.into())
        .await
        .unwrap();
    limit.changed().await.unwrap();
    assert_eq!(limit.borrow_and_update().as_ref().unwrap().value, 3);
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_counter_add_up() {
    let store = Store::default();
    let add = |_| {
        let counter = store.client().counter("hits").shards(4);
        async move {
            for _ in 0..20 {
                counter.add(1).await.unwrap();
            }
        }
    };
    join_all((0..10).map(add)).await;
    assert_eq!(
        store
            .client()
            .counter("hits")
            .shards(4)
            .get()
            .await
            .unwrap(),
        200
    );
    assert!(
        store.client().backend().list("hits/").await.unwrap().len() > 1,
        "all in one shard"
    );
}
