//! A store that outgrows its folder: copied into a bucket, and back, with nothing lost.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::leases::acquire;
use ifmatch_blob::conformance::{blob, pattern, put};
use ifmatch_blob::headers::{Append, BlobHeaders};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    AppendBlock, BlobInfo, ContainerInfo, Delete, HeaderChange, ListQuery, Put, Reading, SetHeaders,
};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob_indexed::{IndexedStore, Objects, Progress};
use ifmatch_core::record::Record;
use ifmatch_register::{Driver, Key, MemoryRegister, Scan};
use object_store::path::Path as Location;

use crate::faulty_objects::FaultyObjects;
use crate::support::bytes;

/// Longer than any body that is sent at once.
const IN_PARTS: usize = 9 * 1024 * 1024;

fn bucket() -> IndexedStore {
    let objects = Objects::new(Arc::new(FaultyObjects::default()), Location::default());
    IndexedStore::in_bucket(objects, Driver::new(MemoryRegister::unbounded())).unwrap()
}

async fn open(folder: &Path) -> IndexedStore {
    reopen(async || IndexedStore::open(folder).await).await
}

/// Returns all that a store shows.
async fn shown(store: &IndexedStore) -> Vec<(String, ContainerInfo, Vec<(BlobInfo, Bytes)>)> {
    let mut all = Vec::new();
    for container in store
        .containers(&ListQuery::first(100))
        .await
        .unwrap()
        .items
    {
        let mut blobs = Vec::new();
        for entry in store
            .list(&container.name, &ListQuery::first(100))
            .await
            .unwrap()
            .unwrap()
            .items
        {
            let path = BlobPath {
                container: container.name.clone(),
                name: entry.name,
            };
            let mut opened = store.open(&path, Reading::WHOLE).await.unwrap().unwrap();
            let bytes = bytes(&mut opened).await;
            // The time at which a lease was seen differs.
            blobs.push((
                BlobInfo {
                    lease: None,
                    ..opened.info
                },
                bytes,
            ));
        }
        all.push((container.name.to_string(), container.info, blobs));
    }
    all
}

/// Returns the records: all that a store knows, also fencing tokens, dates of deletions, and responses for late retries.
async fn records(store: &IndexedStore) -> Vec<(Key, Record)> {
    store
        .index()
        .scan(&Scan {
            prefix: "",
            after: None,
            limit: 100,
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_store_moves_from_a_folder_into_a_bucket_and_back() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let store = open(folders[0].path()).await;
    for length in [0, 4_096, 5_000, 300_000, IN_PARTS] {
        store
            .put(&blob("c", &length.to_string()), put(pattern(length)))
            .await
            .unwrap();
    }
    let log = blob("other", "log");
    let headers = BlobHeaders {
        append: Some(Append::default()),
        ..BlobHeaders::default()
    };
    store.put(&log, Put { headers, ..put("") }).await.unwrap();
    for _ in 0..3 {
        store
            .append(&log, AppendBlock::new(pattern(6_000)))
            .await
            .unwrap();
    }
    let tagged = blob("c", "5000");
    let tags = HeaderChange::Tags("state=done".parse().unwrap());
    store
        .set_headers(&tagged, SetHeaders::new(tags))
        .await
        .unwrap();
    store.lease(&tagged, acquire(1)).await.unwrap();
    store.put(&blob("c", "gone"), put("gone")).await.unwrap();
    store
        .delete(&blob("c", "gone"), Delete::default())
        .await
        .unwrap();

    let (bucket, progress) = (bucket(), Progress::default());
    let total = store.copy_into(&bucket, &progress).await.unwrap();
    assert_eq!(
        (total.bodies, total.bytes),
        (6, (4_096 + 5_000 + 300_000 + IN_PARTS + 18_000) as u64)
    );
    assert_eq!(shown(&bucket).await, shown(&store).await);
    assert_eq!(records(&bucket).await, records(&store).await);
    let released = bucket.lease(&tagged, acquire(2)).await.unwrap_err();
    assert!(
        released.to_string().contains("lease"),
        "the lease is still there: {released}"
    );
    assert!(
        store.copy_into(&bucket, &progress).await.is_err(),
        "the target isn't empty"
    );

    bucket
        .append(&log, AppendBlock::new(pattern(6_000)))
        .await
        .unwrap();
    let left = BlobPath {
        container: ContainerName::internal("left").unwrap(),
        ..blob("c", "b")
    };
    bucket.put(&left, put("left")).await.unwrap();
    let back = open(folders[1].path()).await;
    bucket.copy_into(&back, &progress).await.unwrap();
    assert!(!back.peek().unwrap().is_empty(&left.container));
    drop(back);
    let back = open(folders[1].path()).await;
    assert_eq!(shown(&back).await, shown(&bucket).await);
    assert_eq!(records(&back).await, records(&bucket).await);
}
