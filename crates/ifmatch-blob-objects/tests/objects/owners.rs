//! Several gateways with their own registers on one store: only the owner makes unconditional changes.

use std::sync::Arc;

use ifmatch_blob::store::{Delete, StoreErrorKind};
use ifmatch_blob_objects::{Backing, ObjectBlobs, OpenErrorKind, forget_store};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;

use crate::{open, register, subject};
use ifmatch_blob::conformance::{blob, kind, pattern, put};

/// Length of a body that is sent in parts.
const LONG: usize = 8 * 1024 * 1024 + 1;

fn store() -> (Arc<InMemory>, Backing) {
    let objects = Arc::new(InMemory::new());
    (Arc::clone(&objects), Backing::new(objects).with_prefix("team".into()))
}

#[tokio::test]
async fn a_second_durable_register_is_refused() {
    let (objects, backing) = store();
    let ours = register();
    drop(ObjectBlobs::open_durable(backing.clone(), ours.clone()).await.expect("the store is new"));

    let error = ObjectBlobs::open_durable(backing.clone(), register()).await.expect_err("it is taken");
    assert_eq!(error.kind(), OpenErrorKind::Taken);
    assert!(error.to_string().contains("delete the object team/-ifmatch/owner"), "{error}");
    let error = ObjectBlobs::open(backing.clone(), register()).await.expect_err("it is taken");
    assert_eq!(error.kind(), OpenErrorKind::Taken);

    drop(ObjectBlobs::open_durable(backing.clone(), ours).await.expect("a restart"));
    objects.delete(&"team/-ifmatch/owner".into()).await.unwrap();
    drop(ObjectBlobs::open_durable(backing, register()).await.expect("the operator gave it away"));
}

/// Two gateways share a register, and one of them was given another store by mistake. Their permits exclude each other, and
/// protect different objects.
#[tokio::test]
async fn a_register_describes_one_store() {
    let ((objects, first), (others, second)) = (store(), store());
    let ours = register();
    drop(ObjectBlobs::open_durable(first.clone(), ours.clone()).await.expect("both are new"));
    for other in [second.clone(), first.clone().with_prefix("other".into())] {
        let error = ObjectBlobs::open_durable(other, ours.clone()).await.expect_err("it is another store");
        assert_eq!(error.kind(), OpenErrorKind::Taken);
        assert!(error.to_string().contains("describes another store"), "{error}");
    }
    others.head(&"team/-ifmatch/owner".into()).await.expect_err("a gateway with a register of its own may use it");
    drop(ObjectBlobs::open_durable(first.clone(), ours.clone()).await.expect("a restart"));

    // Its objects were moved to the other store, and the mark with them.
    let mark = objects.get(&"team/-ifmatch/owner".into()).await.unwrap().bytes().await.unwrap();
    others.put(&"team/-ifmatch/owner".into(), mark.into()).await.unwrap();
    drop(ObjectBlobs::open_durable(second, ours.clone()).await.expect("it has the name of the first"));
    // The first one was emptied.
    objects.delete(&"team/-ifmatch/owner".into()).await.unwrap();
    ObjectBlobs::open_durable(first.clone(), ours.clone()).await.expect_err("it may be any store");
    forget_store(&ours).await.unwrap();
    drop(ObjectBlobs::open_durable(first, ours).await.expect("the operator has said so"));
}

/// Both gateways start at the same time, at each other's side: one of them gets the register.
#[tokio::test]
async fn of_two_stores_that_claim_a_register_at_once_one_gets_it() {
    for _ in 0..20 {
        let ((_, first), (_, second), ours) = (store(), store(), register());
        let open = |backing: &Backing| ObjectBlobs::open_durable(backing.clone(), ours.clone());
        let opened = futures_util::join!(open(&first), open(&second));
        assert!(opened.0.is_ok() != opened.1.is_ok(), "{opened:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_lost_its_store_makes_no_unconditional_change() {
    let (_, backing) = store();
    let first = subject(open(backing.clone()).await);
    let blob = blob("c", "b");
    first.write(&blob, "before").await;
    let second = subject(open(backing).await);

    let refused = kind(first.store.delete(&blob, Delete::default()).await);
    assert_eq!(refused, StoreErrorKind::Unavailable);
    assert_eq!(kind(first.store.put(&blob, put(pattern(LONG))).await), StoreErrorKind::Unavailable);
    let refused = kind(first.store.delete_container(&blob.container, Delete::default()).await);
    assert_eq!(refused, StoreErrorKind::OutcomeUnknown);
    assert_eq!(second.read(&blob).await.expect("it still exists").1, "before");

    second.write(&blob, pattern(LONG)).await;
    second.store.delete(&blob, Delete::default()).await.unwrap();
}

#[tokio::test]
async fn a_store_that_ignores_conditions_has_one_writer() {
    let store = crate::faults::Faulty::in_memory(true);
    let backing = Backing::new(Arc::clone(&store) as Arc<dyn object_store::ObjectStore>);
    let first = subject(open(backing.clone()).await);
    let blob = blob("c", "b");
    first.write(&blob, "before").await;
    let second = subject(open(backing).await);
    assert_eq!(kind(first.store.put(&blob, put("late")).await), StoreErrorKind::Unavailable);
    second.write(&blob, "after").await;
    assert_eq!(first.read(&blob).await.expect("reads go on").1, "after");
}
