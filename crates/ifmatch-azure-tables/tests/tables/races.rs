//! Many writers at once, over the durable register: no merge is lost, no tag serves twice.

use std::sync::Arc;

use ifmatch_blob_embedded::EmbeddedStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{Client, ManualClock};

async fn durable() -> (TempDir, Arc<Client>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = EmbeddedStore::open(folder.path()).await.expect("an empty folder opens");
    let client = Client::over(store, &ManualClock::default());
    client.create("tab").await;
    (folder, Arc::new(client))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_inserters_one_does() {
    let (_folder, client) = durable().await;
    let mut inserters = JoinSet::new();
    for by in 0..20 {
        let client = Arc::clone(&client);
        inserters.spawn(async move { (client.insert(json!({ "by": by })).await.status.as_u16(), by) });
    }
    let answers = inserters.join_all().await;
    let winners: Vec<_> = answers.iter().filter(|(status, _)| *status == 204).collect();
    let [(_, winner)] = winners[..] else { panic!("{} inserted it", winners.len()) };
    assert!(answers.iter().all(|(status, _)| matches!(status, 204 | 409)), "{answers:?}");
    assert_eq!(client.properties().await, json!({ "by": winner }));
}

/// Each writer has a property of its own; all end with what their writer wrote last.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_merge_of_another_property_is_lost() {
    const ROUNDS: u32 = 20;
    let (_folder, client) = durable().await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let client = Arc::clone(&client);
        writers.spawn(async move {
            for round in 1..=ROUNDS {
                let method = if round % 2 == 0 { "PATCH" } else { "MERGE" };
                client.write(method, None, json!({ format!("p{writer}"): round })).await.is(204);
            }
        });
    }
    writers.join_all().await;
    let all: Value =
        (0..8).map(|writer| (format!("p{writer}"), ROUNDS.into())).collect::<serde_json::Map<_, _>>().into();
    assert_eq!(client.properties().await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_with_tags_add_up() {
    const INCREMENTS: u64 = 12;
    let (_folder, client) = durable().await;
    client.insert(json!({ "count": 0 })).await.is(204);
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let client = Arc::clone(&client);
        writers.spawn(async move {
            let mut done = 0;
            while done < INCREMENTS {
                let read = client.get(crate::support::ENTITY).await;
                let next = json!({ "count": read.json()["count"].as_u64().expect("a number") + 1 });
                let method = if writer % 2 == 0 { "PUT" } else { "MERGE" };
                match client.write(method, Some(&read.tag()), next).await.status.as_u16() {
                    204 => done += 1,
                    412 => {}
                    other => panic!("{other}"),
                }
            }
        });
    }
    writers.join_all().await;
    assert_eq!(client.properties().await, json!({ "count": 8 * INCREMENTS }));
}

/// As many deletions as creations succeed, but for what is there at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn insertions_and_deletions_alternate() {
    let (_folder, client) = durable().await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let client = Arc::clone(&client);
        tasks.spawn(async move {
            let (mut inserted, mut deleted) = (0, 0);
            for _ in 0..20 {
                inserted += i32::from(client.insert(json!({})).await.status == 204);
                let read = client.get(crate::support::ENTITY).await;
                let tag = read.headers.get("etag").map_or("*".to_owned(), |_| read.tag());
                deleted += i32::from(client.delete(&tag).await.status == 204);
            }
            inserted - deleted
        });
    }
    let left: i32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(left, i32::from(client.properties().await != Value::Null));
}
