//! Deleted containers leave nothing in the folder and the index, even after a crash.

use std::path::Path;
use std::time::Duration;

use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::{blob, pattern, put};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Delete, HeaderChange, ListQuery, Reading};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_redb::RedbRegister;
use ifmatch_register::{Register, Scan};
use tokio::runtime::Builder;

use crate::support::bodies;

async fn records(folder: &Path, prefix: &str) -> usize {
    let register = RedbRegister::open(folder.join("index.redb")).unwrap();
    register
        .scan(&Scan {
            prefix,
            after: None,
            limit: 10_000,
        })
        .await
        .unwrap()
        .len()
}

/// Opens the store once the tasks of the previous one have released it.
async fn open(folder: &Path) -> IndexedStore {
    reopen(async || IndexedStore::open(folder).await).await
}

async fn until_bodies(folder: &Path, expected: usize) {
    let collected = async {
        while bodies(folder) != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), collected).await;
    assert!(
        waited.is_ok(),
        "{} bodies instead of {expected}",
        bodies(folder)
    );
}

async fn fill(store: &IndexedStore, container: &str) {
    for number in 0..20 {
        let length = if number % 2 == 0 { 10 } else { 10_000 };
        store
            .put(&blob(container, &format!("{number}")), put(pattern(length)))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_blobs_of_a_deleted_container_are_collected() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    fill(&store, "deleted").await;
    fill(&store, "kept").await;
    store
        .delete_container(&blob("deleted", "x").container, Delete::default())
        .await
        .unwrap();
    until_bodies(folder.path(), 10).await;
    drop(store);
    drop(open(folder.path()).await);
    assert_eq!(bodies(folder.path()), 10);
    assert_eq!(records(folder.path(), "b/deleted/").await, 0);
    assert_eq!(records(folder.path(), "b/kept/").await, 20);
}

/// The runtime ends with the deletion's answer, before the deletion's background task has run.
#[test]
fn a_crash_after_a_deletion_leaves_it_to_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let container = blob("c", "x").container;
    runtime().block_on(async {
        let store = open(folder.path()).await;
        fill(&store, "c").await;
        store
            .delete_container(&container, Delete::default())
            .await
            .unwrap();
        assert_eq!(bodies(folder.path()), 10, "nothing is collected yet");
    });
    runtime().block_on(async {
        let store = open(folder.path()).await;
        assert_eq!(bodies(folder.path()), 0);
        assert!(store.container(&container).await.unwrap().is_none());
        store
            .create_container(&container, BlobHeaders::default())
            .await
            .unwrap();
        fill(&store, "c").await;
    });
    runtime().block_on(async {
        drop(open(folder.path()).await);
        assert_eq!(bodies(folder.path()), 10);
        assert_eq!(records(folder.path(), "b/").await, 20);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writes_and_deletions_leave_exactly_the_referenced_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let container = blob("race", "x").container;
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, path) = (
            store.clone(),
            BlobPath {
                container: container.clone(),
                ..blob("c", &format!("{writer}"))
            },
        );
        tasks.spawn(async move {
            for round in 0..15 {
                store.put(&path, put(pattern(5_000 + round))).await.unwrap();
                let change = set(HeaderChange::Metadata([].into()));
                // The container may have been deleted meanwhile.
                let _ = store.set_headers(&path, change).await;
            }
        });
    }
    for _ in 0..2 {
        let (store, container) = (store.clone(), container.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                // There may be none.
                let _ = store.delete_container(&container, Delete::default()).await;
                store.forget_deletions().await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    fill(&store, "race").await;
    store.forget_deletions().await.unwrap();
    let query = ListQuery::first(1_000);
    let listed = store.list(&container, &query).await.unwrap().unwrap().items;
    assert!(listed.len() >= 20);
    let large = listed
        .iter()
        .filter(|item| item.info.length > 4_096)
        .count();
    until_bodies(folder.path(), large).await;
    for item in listed {
        let path = BlobPath {
            container: container.clone(),
            name: item.name,
        };
        let opened = store.open(&path, Reading::WHOLE).await;
        assert!(opened.unwrap().is_some(), "{path}");
    }
}
