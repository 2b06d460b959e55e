//! The conformance suite on the embedded store with its index in the folder.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

mod appends;
mod bucket;
mod collected;
mod copies;
mod faulty_objects;
mod interleavings;
mod times;
mod transfers;
mod unreliable;

use ifmatch_blob::conformance::{self, Subject};
use ifmatch_blob_embedded::EmbeddedStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_embedded_store_conforms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Arc::new(EmbeddedStore::open(folder.path()).await.expect("opens"));
    let subject = Subject {
        store,
        keeps_headers: true,
        changes_tags: true,
        knows_retries: true,
        remembers_deletions: true,
        leases: true,
        nests: true,
        writers: 16,
    };
    conformance::check(&subject).await;
}
