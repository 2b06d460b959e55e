//! Other programs write between the lookup and the write of an object.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::Request;
use http::header::{ETAG, RANGE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::BlobService;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{BoxError, ListQuery, Put, StoreErrorKind, Upload};
use ifmatch_blob_objects::{BackingStore, ConditionSupport, ObjectBlobs};
use ifmatch_core::precondition::{Precondition, Preconditions};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tower::ServiceExt;

use crate::faults::{Fault, Faulty};
use crate::{folder, objects, open, register, subject};
use ifmatch_blob::conformance::{Subject, blob, if_absent, if_match, pattern, put, refusal};

async fn faulty() -> (Arc<Faulty>, Subject) {
    let store = Faulty::in_memory(false);
    let blobs = open(BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>)).await;
    store.modes();
    (store, subject(blobs))
}

#[tokio::test]
async fn a_range_is_served_although_the_object_is_replaced_after_each_request() {
    let (store, subject) = faulty().await;
    let blob = blob("c", "b");
    let service = BlobService::new(Arc::clone(&subject.store));
    for (range, status, part) in [
        ("bytes=1-2", 206, "ur"),
        ("bytes=2-", 206, "rs"),
        ("bytes=-1", 206, "s"),
        ("bytes=0-3", 206, "ours"),
        ("bytes=6-", 416, ""),
    ] {
        store.replace_after_reads(None);
        let tag = subject.write(&blob, "ours").await.tag.unwrap().to_header();
        store.replace_after_reads("theirs");
        let request = Request::get("/c/b")
            .header(RANGE, range)
            .body(BlobBody::empty())
            .unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{range}");
        if status == 206 {
            assert_eq!(response.headers()[ETAG], tag, "{range}");
            assert_eq!(
                response.into_body().collect().await.unwrap().to_bytes(),
                part,
                "{range}"
            );
        }
    }
}

#[tokio::test]
async fn a_folder_protects_creations_too() {
    let root = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::new(objects(root.path())));
    let backing = folder(root.path()).map(|_| Arc::clone(&store) as Arc<dyn ObjectStore>);
    let subject = subject(open(backing).await);
    let blob = blob("c", "b");
    store.schedule([Fault::Foreign("theirs")]);
    assert_eq!(
        refusal(subject.write_if(&blob, if_absent(), "ours").await).0,
        Precondition::IfNoneMatch
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "theirs");
}

#[tokio::test]
async fn an_object_that_keeps_changing_is_not_overwritten() {
    let (store, subject) = faulty().await;
    let blob = blob("c", "b");
    store.schedule((0..8).map(|_| Fault::Foreign("theirs")));
    let error = subject
        .write_if(&blob, Preconditions::default(), "ours")
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), StoreErrorKind::InFlight { .. }),
        "{error}"
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "theirs");
    assert!(
        !subject.write(&blob, "ours").await.created,
        "the permit was given back"
    );
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_detected() {
    let store = Faulty::in_memory(true);
    let blobs = ObjectBlobs::open(
        BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>),
        register(),
    )
    .await
    .unwrap();
    let capability = blobs.capability();
    assert_eq!(
        (capability.create, capability.update),
        (ConditionSupport::Ignored, ConditionSupport::Ignored)
    );
    assert!(!capability.is_native() && capability.metadata);
    let subject = subject(blobs);
    store.modes();
    let tag = subject
        .write_if(&blob("c", "b"), if_absent(), "1")
        .await
        .unwrap()
        .tag
        .unwrap();
    subject
        .write_if(&blob("c", "b"), if_match(&tag), "2")
        .await
        .unwrap();
    assert_eq!(
        store.modes(),
        ["overwrite", "overwrite"],
        "ignored conditions are not sent"
    );
    ifmatch_blob::conformance::check(&subject).await;
}

#[tokio::test]
async fn a_large_write_is_compared_again_on_completion() {
    let (store, subject) = faulty().await;
    let blob = blob("c", "b");
    let tag = subject.write(&blob, "ours").await.tag.unwrap();
    store.modes();
    let chunk = pattern(3 * 1024 * 1024);
    let others = Arc::clone(&store);
    // Another program writes when half of the body has arrived.
    let frames = stream::iter(0..8).then(move |at| {
        let (others, chunk) = (Arc::clone(&others), chunk.clone());
        async move {
            if at == 5 {
                others.put(&"c/b".into(), "theirs".into()).await.unwrap();
            }
            Ok::<_, BoxError>(Frame::data(chunk))
        }
    });
    let body = Upload::new(StreamBody::new(frames));
    let refused = subject
        .store
        .put(
            &blob,
            Put {
                preconditions: if_match(&tag),
                body,
                ..put("")
            },
        )
        .await;
    assert_eq!(refusal(refused).0, Precondition::IfMatch);
    assert_eq!(
        store.modes(),
        ["multipart", "overwrite"],
        "the parts were under way"
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "theirs");
}

/// No request may have the name of the object, and the listing shows the others.
#[tokio::test]
async fn an_object_with_a_backslash_in_its_name_is_not_listed() {
    let (store, subject) = faulty().await;
    let blob = blob("c", "b");
    subject.write(&blob, "ours").await;
    store
        .put(&Path::parse("c/a\\b").unwrap(), "theirs".into())
        .await
        .unwrap();
    let all = ListQuery::first(10);
    let listed = subject
        .store
        .list(&blob.container, &all)
        .await
        .unwrap()
        .expect("the container");
    assert_eq!(
        listed
            .items
            .iter()
            .map(|entry| &entry.name)
            .collect::<Vec<_>>(),
        [&blob.name]
    );
}
