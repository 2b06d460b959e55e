//! Helpers that read a folder's files and a blob's bytes.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::BodyExt;
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Opened, Reading};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::digest::ContentHash;

/// Returns the files of bodies.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let shards = std::fs::read_dir(folder.join("bodies"))
        .unwrap()
        .map(|shard| shard.unwrap().path());
    shards
        .flat_map(|shard| {
            std::fs::read_dir(shard)
                .unwrap()
                .map(|file| file.unwrap().path())
        })
        .collect()
}

/// Returns the number of files in a folder and below it.
fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { count(&path) } else { 1 })
        .sum()
}

/// Returns the number of files of bodies, including incoming ones.
pub(crate) fn bodies(folder: &Path) -> usize {
    count(&folder.join("bodies")) + count(&folder.join("tmp"))
}

/// Returns the bytes of a blob, which have the hash of its version.
pub(crate) async fn read(store: &IndexedStore, blob: &BlobPath) -> Bytes {
    let opened = store.open(blob, Reading::WHOLE).await.unwrap();
    bytes(&mut opened.expect("there it is")).await
}

/// Returns the bytes of a blob that was opened, which have the hash of its version.
pub(crate) async fn bytes(opened: &mut Opened) -> Bytes {
    let body = opened.source.read(None).await.unwrap();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(
        Some(ContentHash::of(&bytes)),
        opened.info.hash,
        "the bytes of another version"
    );
    bytes
}
