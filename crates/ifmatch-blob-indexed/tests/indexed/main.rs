//! Tests of the indexed store: here, the conformance suite with the index in the folder.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

mod appends;
mod bucket;
mod collected;
mod copies;
mod faulty_objects;
mod groups;
mod interleavings;
mod support;
mod times;
mod transfers;
mod unreliable;

use ifmatch_blob::BlobStore;
use ifmatch_blob::conformance::{self, Subject};
use ifmatch_blob_indexed::IndexedStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_indexed_store_conforms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    conformance::check(&subject(
        IndexedStore::open(folder.path()).await.expect("opens"),
    ))
    .await;
}

/// Returns a store to check, with all that this crate's stores can do.
fn subject(store: impl BlobStore) -> Subject {
    Subject {
        store: Arc::new(store),
        keeps_headers: true,
        changes_tags: true,
        knows_retries: true,
        remembers_deletions: true,
        leases: true,
        nests: true,
        writers: 16,
    }
}
