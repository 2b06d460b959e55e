//! Copies share the file of their source.

use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::{blob, kind, pattern, put};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BoxError, Delete, Opened, Put, Reading, StoreErrorKind, Upload};
use ifmatch_blob::test_util::reopen;
use ifmatch_blob_indexed::IndexedStore;

use crate::support::{files, read};

const LENGTH: usize = 300_000;

/// Returns a copy that must share the file: the body can't be read.
async fn shared(source: &BlobPath, opened: Opened) -> Put {
    let lost = stream::once(async { Err::<Frame<Bytes>, BoxError>("the body is read".into()) });
    Put {
        body: Upload::new(StreamBody::new(lost)),
        ..Put::copying(source, opened).await.unwrap()
    }
}

#[tokio::test]
async fn a_copy_shares_the_file_and_outlives_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let store = IndexedStore::open(folder.path()).await.unwrap();
    let (source, copy) = (blob("c", "source"), blob("c", "copy"));
    store.put(&source, put(pattern(LENGTH))).await.unwrap();
    let open = async || store.open(&source, Reading::RANGES).await.unwrap().unwrap();
    let put_of_copy = shared(&source, open().await).await;
    store.put(&copy, put_of_copy).await.unwrap();
    let inodes: Vec<u64> = files(folder.path())
        .iter()
        .map(|file| file.metadata().unwrap().ino())
        .collect();
    assert_eq!(inodes.len(), 2);
    assert_eq!(inodes[0], inodes[1]);
    // A copy onto itself is a new version of the same bytes.
    let onto_itself = shared(&source, open().await).await;
    store.put(&source, onto_itself).await.unwrap();
    assert_eq!(files(folder.path()).len(), 2);
    // The bytes of a version that was replaced, or of one with another hash, are read from the body.
    let opened = open().await;
    store.put(&source, put(pattern(LENGTH / 2))).await.unwrap();
    let refused = shared(&source, opened).await;
    assert_eq!(
        kind(store.put(&copy, refused).await),
        StoreErrorKind::Interrupted
    );
    store.delete(&source, Delete::default()).await.unwrap();
    assert_eq!(read(&store, &copy).await, pattern(LENGTH));
    drop(store);
    let store = reopen(async || IndexedStore::open(folder.path()).await).await;
    assert_eq!(read(&store, &copy).await, pattern(LENGTH));
    assert_eq!(files(folder.path()).len(), 1, "a restart keeps one name");
}

/// The process ended after the second name was made, and before a record had it.
#[tokio::test]
async fn a_name_without_a_record_is_collected() {
    let folder = tempfile::tempdir().unwrap();
    let store = IndexedStore::open(folder.path()).await.unwrap();
    let source = blob("c", "source");
    store.put(&source, put(pattern(LENGTH))).await.unwrap();
    drop(store);
    let file = files(folder.path()).remove(0);
    let name = file
        .to_str()
        .unwrap()
        .rsplit_once('-')
        .unwrap()
        .0
        .to_owned();
    std::fs::hard_link(&file, format!("{name}-00000000000000ff")).unwrap();
    let store = reopen(async || IndexedStore::open(folder.path()).await).await;
    assert_eq!(files(folder.path()), [file]);
    assert_eq!(read(&store, &source).await, pattern(LENGTH));
}
