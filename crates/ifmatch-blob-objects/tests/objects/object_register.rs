//! The register on an object store: the conformance suite through one handle and two, and stores that cannot hold one.

use std::sync::Arc;

use ifmatch_blob_objects::{Backing, ObjectRegister, OpenErrorKind};
use ifmatch_register::conformance::{self, RaceSize};
use object_store::memory::InMemory;

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_in_memory() {
    let register = ObjectRegister::open(Backing::new(Arc::new(InMemory::new()))).await.unwrap();
    conformance::run(register, size()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let objects = Arc::new(InMemory::new());
    let open = async || ObjectRegister::open(Backing::new(objects.clone()).with_prefix("a/b".into())).await.unwrap();
    conformance::run_shared(open, size()).await;
}

#[tokio::test]
async fn a_store_without_conditional_writes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = ObjectRegister::connect(&format!("file://{}", folder.path().display()), []).await.unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Unusable);
    assert!(error.to_string().contains("conditional writes"), "{error}");
}
