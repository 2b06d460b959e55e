//! Several gateways with their own registers on one store: only the owner makes unconditional changes.

use std::sync::Arc;

use futures_util::future::join_all;
use ifmatch_blob::conformance::{
    self, Subject, blob, count, if_absent, if_match, kind, pattern, put,
};
use ifmatch_blob::store::{Delete, Put, StoreError, StoreErrorKind};
use ifmatch_blob_objects::{
    BackingStore, ObjectBlobs, OpenErrorKind, StoreCapabilities, forget_store,
};
use ifmatch_core::command::Command;
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;

use crate::{LONG, open, register, subject};

fn store() -> (Arc<InMemory>, BackingStore) {
    let objects = Arc::new(InMemory::new());
    (
        Arc::clone(&objects),
        BackingStore::new(objects).with_prefix("team".into()),
    )
}

#[tokio::test]
async fn a_second_durable_register_is_refused() {
    let (objects, backing) = store();
    let ours = register();
    drop(
        ObjectBlobs::open_durable(backing.clone(), ours.clone())
            .await
            .expect("the store is new"),
    );

    let error = ObjectBlobs::open_durable(backing.clone(), register())
        .await
        .expect_err("it is taken");
    assert_eq!(error.kind(), OpenErrorKind::Taken);
    assert!(
        error
            .to_string()
            .contains("delete the object team/-ifmatch/owner"),
        "{error}"
    );
    let error = ObjectBlobs::open(backing.clone(), register())
        .await
        .expect_err("it is taken");
    assert_eq!(error.kind(), OpenErrorKind::Taken);

    drop(
        ObjectBlobs::open_durable(backing.clone(), ours)
            .await
            .expect("a restart"),
    );
    objects.delete(&"team/-ifmatch/owner".into()).await.unwrap();
    drop(
        ObjectBlobs::open_durable(backing, register())
            .await
            .expect("the operator gave it away"),
    );
}

/// Two gateways share a register, and one of them was given another store by mistake. Their permits exclude each other, and
/// protect different objects.
#[tokio::test]
async fn a_register_describes_one_store() {
    let ((objects, first), (others, second)) = (store(), store());
    let ours = register();
    drop(
        ObjectBlobs::open_durable(first.clone(), ours.clone())
            .await
            .expect("both are new"),
    );
    for other in [second.clone(), first.clone().with_prefix("other".into())] {
        let error = ObjectBlobs::open_durable(other, ours.clone())
            .await
            .expect_err("it is another store");
        assert_eq!(error.kind(), OpenErrorKind::Taken);
        assert!(
            error.to_string().contains("describes another store"),
            "{error}"
        );
    }
    others
        .head(&"team/-ifmatch/owner".into())
        .await
        .expect_err("a gateway with a register of its own may use it");
    drop(
        ObjectBlobs::open_durable(first.clone(), ours.clone())
            .await
            .expect("a restart"),
    );

    // Its objects were moved to the other store, and the mark with them.
    let mark = objects
        .get(&"team/-ifmatch/owner".into())
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    others
        .put(&"team/-ifmatch/owner".into(), mark.into())
        .await
        .unwrap();
    drop(
        ObjectBlobs::open_durable(second, ours.clone())
            .await
            .expect("it has the name of the first"),
    );
    // The first one was emptied.
    objects.delete(&"team/-ifmatch/owner".into()).await.unwrap();
    ObjectBlobs::open_durable(first.clone(), ours.clone())
        .await
        .expect_err("it may be any store");
    forget_store(&ours).await.unwrap();
    drop(
        ObjectBlobs::open_durable(first, ours)
            .await
            .expect("the operator has said so"),
    );
}

/// A gateway that is still running changes the record at the same time.
#[tokio::test]
async fn a_store_that_was_chosen_again_is_not_reported_as_forgotten() {
    let ((_, backing), register) = (store(), FaultyRegister::default());
    ObjectBlobs::open_durable(backing, Arc::new(register.clone()))
        .await
        .expect("both are new");
    let records = Arc::clone(register.records());
    register.before_swap("i/store", async move {
        let key = Key::new("i/store").unwrap();
        let record = records.load(&key).await.unwrap().expect("a name");
        let next = record
            .apply(&Command::Invalidate(7), SystemClock.now())
            .next;
        records
            .compare_and_swap(&key, record.revision(), next.as_ref())
            .await
            .unwrap();
    });
    forget_store(&register).await.unwrap_err();
    forget_store(&register).await.expect("now it is forgotten");
}

/// Both gateways start at the same time, at each other's side: one of them gets the register.
#[tokio::test]
async fn of_two_stores_that_claim_a_register_at_once_one_gets_it() {
    for _ in 0..20 {
        let ((_, first), (_, second), ours) = (store(), store(), register());
        let open =
            |backing: &BackingStore| ObjectBlobs::open_durable(backing.clone(), ours.clone());
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
    assert_eq!(
        kind(first.store.put(&blob, put(pattern(LONG))).await),
        StoreErrorKind::Unavailable
    );
    let refused = kind(
        first
            .store
            .delete_container(&blob.container, Delete::default())
            .await,
    );
    assert_eq!(refused, StoreErrorKind::OutcomeUnknown);
    assert_eq!(
        second.read(&blob).await.expect("it still exists").1,
        "before"
    );

    second.write(&blob, pattern(LONG)).await;
    second.store.delete(&blob, Delete::default()).await.unwrap();
}

#[tokio::test]
async fn a_store_that_ignores_conditions_has_one_writer() {
    let store = crate::faults::Faulty::in_memory(true);
    let backing = BackingStore::new(Arc::clone(&store) as Arc<dyn object_store::ObjectStore>);
    let first = subject(open(backing.clone()).await);
    let blob = blob("c", "b");
    first.write(&blob, "before").await;
    let second = subject(open(backing).await);
    assert_eq!(
        kind(first.store.put(&blob, put("late")).await),
        StoreErrorKind::Unavailable
    );
    second.write(&blob, "after").await;
    assert_eq!(first.read(&blob).await.expect("reads go on").1, "after");
}

const ROUNDS: usize = 20;

fn backing() -> BackingStore {
    BackingStore::new(Arc::new(InMemory::new()))
}

fn unrecorded(backing: &BackingStore) -> Subject {
    subject(ObjectBlobs::unrecorded(
        backing.clone(),
        StoreCapabilities::FULL,
    ))
}

async fn gateways() -> [[Subject; 2]; 2] {
    let (own, none) = (backing(), backing());
    [
        [subject(open(own.clone()).await), subject(open(own).await)],
        [unrecorded(&none), unrecorded(&none)],
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_creator_wins() {
    for (gateways, round) in gateways()
        .await
        .iter()
        .flat_map(|pair| (0..ROUNDS).map(move |round| (pair, round)))
    {
        let blob = blob("c", &round.to_string());
        let writers = (0..20)
            .map(|writer| gateways[writer % 2].write_if(&blob, if_absent(), writer.to_string()));
        let results = join_all(writers).await;
        let winners: Vec<_> = (0..20).filter(|writer| results[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        assert_eq!(
            gateways[0].read(&blob).await.unwrap().1,
            winners[0].to_string()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost() {
    let counter = blob("c", "counter");
    let own = backing();
    let first = subject(open(own.clone()).await);
    // Only the gateway that owns the store creates blobs; the second one owns it from here on.
    first.write(&counter, "0").await;
    count(&[&first, &subject(open(own).await)], 6, &counter).await;
    let none = backing();
    let first = unrecorded(&none);
    first.write(&counter, "0").await;
    count(&[&first, &unrecorded(&none)], 6, &counter).await;
}

#[tokio::test]
async fn without_records_uncovered_changes_are_refused() {
    let gateway = unrecorded(&backing());
    let blob = blob("c", "b");
    let tag = gateway.write(&blob, "1").await.tag.unwrap();
    let refused =
        |error: StoreError| assert_eq!(error.kind(), &StoreErrorKind::Unsupported, "{error}");
    // The store has no conditional deletion.
    refused(gateway.delete_if(&blob, if_match(&tag)).await.unwrap_err());
    let long = vec![0; LONG];
    refused(
        gateway
            .write_if(&blob, if_match(&tag), long.clone())
            .await
            .unwrap_err(),
    );
    let put = Put {
        length: None,
        ..conformance::put(long)
    };
    refused(
        gateway
            .store
            .put(
                &blob,
                Put {
                    preconditions: if_match(&tag),
                    ..put
                },
            )
            .await
            .unwrap_err(),
    );
    assert_eq!(gateway.read(&blob).await.unwrap().1, "1");
    gateway
        .delete_if(&blob, Preconditions::default())
        .await
        .unwrap();
    assert!(gateway.read(&blob).await.is_none());
}
