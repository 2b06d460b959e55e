//! Registers that lose a response or list late: no completed change is reported as failed, and no write outlives its
//! container.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{Subject, blob, kind, put};
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::store::{
    Delete, HeaderChange, ListQuery, MissingContainer, Put, RequestKey, StoreError, StoreErrorKind,
};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs, OpenErrorKind, StoreCapabilities};
use ifmatch_core::lease::{BreakPeriod, Lease, LeaseAction, LeaseFailure, LeaseUse, SeenLease};
use ifmatch_core::precondition::{Precondition, Preconditions};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::faulty::{self, FaultyRegister};
use ifmatch_register::{
    Engine, EngineTime, Epoch, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind,
    Swap, Wrapper, async_trait,
};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::faults::{Fault, Faulty};
use crate::{durable_on, register, subject, write_soon};

/// Connects the register again, after the faults that were scheduled.
fn recover(register: &FaultyRegister) {
    assert_eq!(register.scheduled(), 0, "a swap was to fail");
    register.cut(false);
}

/// A change decided by a single swap of the register.
type Change = (
    &'static str,
    fn(&Subject) -> BoxFuture<'_, Result<(), StoreError>>,
);

const CHANGES: [Change; 10] = [
    ("acquire", |subject| {
        Box::pin(async {
            subject
                .store
                .lease(&blob("c", "free"), acquire(2))
                .await
                .map(drop)
        })
    }),
    ("release", |subject| {
        Box::pin(lease(subject, LeaseAction::Release(id(1))))
    }),
    ("change", |subject| {
        Box::pin(lease(
            subject,
            LeaseAction::Change {
                id: id(1),
                proposed: id(2),
            },
        ))
    }),
    ("break", |subject| {
        Box::pin(lease(
            subject,
            LeaseAction::Break {
                period: BreakPeriod::from_seconds(0),
                token: None,
            },
        ))
    }),
    ("acquire the container", |subject| {
        Box::pin(async {
            subject
                .store
                .lease_container(&blob("c", "free").container, acquire(2))
                .await
                .map(drop)
        })
    }),
    ("release the container", |subject| {
        Box::pin(lease_container(subject, LeaseAction::Release(id(1))))
    }),
    ("break the container's lease", |subject| {
        Box::pin(lease_container(
            subject,
            LeaseAction::Break {
                period: BreakPeriod::from_seconds(0),
                token: None,
            },
        ))
    }),
    ("create a container", |subject| {
        Box::pin(async {
            subject
                .store
                .create_container(&blob("new", "x").container, BlobHeaders::default())
                .await
                .map(drop)
        })
    }),
    ("change a container's metadata", |subject| {
        Box::pin(async {
            let metadata = [("owner".into(), FieldText::new("me").unwrap())].into();
            let change = set(HeaderChange::Metadata(metadata));
            subject
                .store
                .set_container(&blob("c", "free").container, change)
                .await
                .map(drop)
        })
    }),
    ("delete a container", |subject| {
        Box::pin(async {
            subject
                .store
                .delete_container(&blob("c", "free").container, Delete::default())
                .await
        })
    }),
];

async fn lease(subject: &Subject, action: LeaseAction) -> Result<(), StoreError> {
    subject
        .store
        .lease(&blob("c", "held"), request(action))
        .await
        .map(drop)
}

async fn lease_container(subject: &Subject, action: LeaseAction) -> Result<(), StoreError> {
    subject
        .store
        .lease_container(&blob("held", "x").container, request(action))
        .await
        .map(drop)
}

/// Returns a lease without the time of its reading.
fn lease_of(seen: Option<SeenLease>) -> Option<Lease> {
    seen.map(|seen| seen.lease)
}

/// All state affected by the changes.
async fn seen(subject: &Subject) -> String {
    let mut seen = Vec::new();
    for name in ["free", "held"] {
        seen.push(format!(
            "{:?}",
            subject
                .head(&blob("c", name))
                .await
                .map(|info| lease_of(info.lease))
        ));
    }
    for name in ["c", "held", "new"] {
        let info = subject
            .store
            .container(&blob(name, "x").container)
            .await
            .unwrap();
        seen.push(format!(
            "{:?}",
            info.map(|info| (lease_of(info.lease), info.headers))
        ));
    }
    seen.join("\n")
}

#[tokio::test]
async fn a_change_with_a_lost_answer_is_not_reported_as_failed() {
    for (what, change) in CHANGES {
        let register = FaultyRegister::default();
        let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
        subject.write(&blob("c", "free"), "1").await;
        subject.write(&blob("c", "held"), "1").await;
        subject
            .store
            .lease(&blob("c", "held"), acquire(1))
            .await
            .unwrap();
        let held = blob("held", "x").container;
        subject
            .store
            .create_container(&held, BlobHeaders::default())
            .await
            .unwrap();
        subject
            .store
            .lease_container(&held, acquire(1))
            .await
            .unwrap();

        let before = seen(&subject).await;
        register.schedule([faulty::Fault::Failed(RegisterErrorKind::Unavailable)]);
        assert_eq!(
            kind(change(&subject).await),
            StoreErrorKind::Unavailable,
            "{what}"
        );
        recover(&register);
        assert_eq!(seen(&subject).await, before, "{what}: it was called undone");

        register.schedule([faulty::Fault::Unanswered {
            done: true,
            then_cut: true,
        }]);
        assert_eq!(
            kind(change(&subject).await),
            StoreErrorKind::OutcomeUnknown,
            "{what}"
        );
        recover(&register);
        assert_ne!(seen(&subject).await, before, "{what}: it took place");
    }
}

#[tokio::test]
async fn a_container_counts_as_created_if_its_record_is_found_after_a_lost_answer() {
    let register = FaultyRegister::default();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let container = blob("new", "x").container;
    register.schedule([faulty::Fault::Unanswered {
        done: true,
        then_cut: false,
    }]);
    subject
        .store
        .create_container(&container, BlobHeaders::default())
        .await
        .expect("its record exists");
    recover(&register);
    assert!(subject.store.container(&container).await.unwrap().is_some());
}

/// By memory, a late write could add a blob to a deleted container there.
#[tokio::test]
async fn without_metadata_a_memory_of_containers_is_refused() {
    let backing = |lasts| BackingStore::new(Arc::new(InMemory::new())).with_container_memory(lasts);
    let capability = StoreCapabilities {
        metadata: false,
        ..StoreCapabilities::FULL
    };
    let error =
        ObjectBlobs::trusting(backing(Duration::from_secs(1)), register(), capability).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Settings);
    assert!(
        error.to_string().contains("memory of containers"),
        "{error}"
    );
    assert!(ObjectBlobs::trusting(backing(Duration::ZERO), register(), capability).is_ok());
    assert!(
        ObjectBlobs::trusting(
            backing(Duration::from_secs(1)),
            register(),
            StoreCapabilities::FULL
        )
        .is_ok()
    );
}

/// A store without metadata can't distinguish a late blob from one of the next container.
#[tokio::test(start_paused = true)]
async fn without_metadata_a_deletion_waits_for_writes_with_a_permit() {
    let store = Faulty::in_memory(false);
    let backing = BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>);
    let capability = StoreCapabilities {
        metadata: false,
        ..StoreCapabilities::FULL
    };
    let subject = subject(ObjectBlobs::trusting(backing, register(), capability).expect("opens"));
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    let (begun, go_on) = store.hold_write();
    let late = subject.store.put(&blob, put("late"));
    let deletion = async {
        begun.await.expect("the write is on its way");
        let mut deleted = subject
            .store
            .delete_container(&blob.container, Delete::default());
        tokio::select! {
            biased;
            _ = &mut deleted => panic!("the container was deleted before the write had ended"),
            // Time is simulated: it passes once the deletion does nothing but wait.
            () = tokio::time::sleep(Duration::from_secs(5)) => go_on.send(()).expect("the write is held"),
        }
        deleted.await.expect("the write has ended");
    };
    let (_, ()) = futures_util::join!(late, deletion);
    store
        .head(&"c/b".into())
        .await
        .expect_err("the blob outlived its container");
}

/// A write with a permit is on its way to the store when the container is deleted without noticing it.
async fn overtaken(is_update: bool, comes_again: bool) {
    let (store, register) = (Faulty::in_memory(false), FaultyRegister::default());
    let subject = durable_on(&store, Arc::new(register.clone())).await;
    let (blob, what) = (
        blob("c", "b"),
        format!("update: {is_update}, created again: {comes_again}"),
    );
    subject
        .store
        .create_container(&blob.container, BlobHeaders::default())
        .await
        .unwrap();
    if is_update {
        subject.write(&blob, "before").await;
    }
    let (begun, go_on) = store.hold_write();
    let late = subject.store.put(
        &blob,
        Put {
            container: MissingContainer::Refuse,
            ..put("late")
        },
    );
    let deletion = async {
        begun.await.expect("the write is on its way");
        register.blind(true);
        subject
            .store
            .delete_container(&blob.container, Delete::default())
            .await
            .expect("it sees no write");
        register.blind(false);
        if comes_again {
            subject
                .store
                .create_container(&blob.container, BlobHeaders::default())
                .await
                .expect("it is gone");
        }
        go_on.send(()).expect("the write is held");
    };
    let (written, ()) = futures_util::join!(late, deletion);
    // A creation took place before the deletion; an update finds nothing to replace.
    assert_eq!(written.is_ok(), !is_update, "{what}: {written:?}");
    assert!(
        subject.read(&blob).await.is_none(),
        "{what}: the blob outlived its container"
    );
    let container = subject.store.container(&blob.container).await.unwrap();
    assert_eq!(container.is_some(), comes_again, "{what}");
    let listed = subject
        .store
        .list(&blob.container, &all())
        .await
        .unwrap()
        .map(|page| page.items);
    assert_eq!(listed, comes_again.then(Vec::new), "{what}");
}

fn all() -> ListQuery {
    ListQuery::first(100)
}

#[tokio::test]
async fn a_stale_scan_lets_no_write_past_a_deletion() {
    for is_update in [false, true] {
        for comes_again in [false, true] {
            overtaken(is_update, comes_again).await;
        }
    }
}

/// The deletion doesn't find the record of the leased blob.
#[tokio::test]
async fn a_stale_scan_leaves_no_lease_in_the_next_container() {
    let register = FaultyRegister::default();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    register.blind(true);
    subject
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .unwrap();
    register.blind(false);

    assert!(
        subject.write(&blob, "after").await.created,
        "a lease of a deleted blob keeps writers off"
    );
    assert_eq!(subject.head(&blob).await.unwrap().lease, None);
    subject
        .store
        .lease(&blob, acquire(2))
        .await
        .expect("it is free");
}

/// The register was restored, or another server has taken over: the records of containers are used as they are found, since
/// nothing else knows them.
#[tokio::test]
async fn containers_outlast_a_failover_of_the_register() {
    let register = FaultyRegister::default();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let (old, empty) = (blob("c", "old"), blob("empty", "x").container);
    subject.write(&old, "1").await;
    let metadata = [("owner".into(), FieldText::new("me").unwrap())].into();
    let headers = BlobHeaders {
        metadata,
        ..BlobHeaders::default()
    };
    subject
        .store
        .create_container(&empty, headers.clone())
        .await
        .unwrap();
    subject.store.lease(&old, acquire(1)).await.unwrap();
    let later = SystemClock.now().saturating_add(Duration::from_mins(1));
    let epoch = Epoch {
        number: 1,
        lost: Revision::NONE.next(later),
    };
    register.set_engine(Engine {
        epoch,
        ..Register::engine(&register)
    });

    assert_eq!(
        subject
            .store
            .container(&empty)
            .await
            .unwrap()
            .expect("it still exists")
            .headers,
        headers
    );
    assert!(subject.write(&blob("c", "new"), "2").await.created);
    assert_eq!(
        kind(subject.store.put(&old, put("3")).await),
        StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing)
    );
    let change = set(HeaderChange::Metadata(
        [("owner".into(), FieldText::new("you").unwrap())].into(),
    ));
    subject
        .store
        .set_container(&empty, change)
        .await
        .expect("its record can be changed");
    subject
        .store
        .delete_container(&empty, Delete::default())
        .await
        .expect("it can be deleted");
    assert!(subject.store.container(&empty).await.unwrap().is_none());
}

/// The deletion has no response, and may still reach the blob of the next holder once the lease has ended. The register fails
/// meanwhile: the permit is prolonged, and given back, when it answers again.
#[tokio::test]
async fn a_permit_is_prolonged_although_the_register_fails() {
    let (store, register) = (Faulty::in_memory(false), FaultyRegister::default());
    let subject = durable_on(&store, Arc::new(register.clone())).await;
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    let soon = BreakPeriod::from_seconds(2).unwrap();
    subject
        .store
        .lease(
            &blob,
            request(LeaseAction::Break {
                period: Some(soon),
                token: None,
            }),
        )
        .await
        .unwrap();
    store.schedule([Fault::LostRequest]);
    // The permit is granted. Its renewal fails once, and its return twice.
    let unavailable = faulty::Fault::Failed(RegisterErrorKind::Unavailable);
    register.schedule([
        faulty::Fault::None,
        unavailable,
        faulty::Fault::None,
        unavailable,
        unavailable,
    ]);
    let lease = LeaseUse::Write(Some(id(1)));
    let error = subject
        .store
        .delete(
            &blob,
            Delete {
                lease,
                ..Delete::default()
            },
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
    let key = Key::new("b/c/b").unwrap();
    let record = register.records().load(&key).await.unwrap().unwrap();
    let permit = record
        .permit(SystemClock.now())
        .expect("it may still take effect");
    assert!(
        record.lease().unwrap().end().unwrap() < permit.deadline,
        "{record:?}"
    );
    let is_doubted = async || {
        register
            .records()
            .load(&key)
            .await
            .unwrap()
            .unwrap()
            .revision()
            > record.revision()
    };
    for attempt in 0.. {
        assert!(attempt < 3_000, "the permit is not given back within 30 s");
        if is_doubted().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The response to an object's deletion is lost, and the deletion takes effect late. The register fails in the meantime.
#[tokio::test(start_paused = true)]
async fn a_deleter_without_its_register_leaves_no_deletion_to_the_next_container() {
    let (store, register) = (Faulty::in_memory(false), FaultyRegister::default());
    let subject = durable_on(&store, Arc::new(register.clone())).await;
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    store.schedule([Fault::Delayed]);
    let unavailable = faulty::Fault::Failed(RegisterErrorKind::Unavailable);
    register.schedule([faulty::Fault::None, unavailable]);
    let failed = subject
        .store
        .delete_container(&blob.container, Delete::default())
        .await;
    assert_eq!(kind(failed), StoreErrorKind::OutcomeUnknown);
    recover(&register);
    // The deleter's turn is over.
    let later = SystemClock.now().saturating_add(Duration::from_mins(2));
    let time = Some(EngineTime {
        earliest: later,
        latest: later,
    });
    register.set_engine(Engine {
        time,
        ..Register::engine(&register)
    });
    write_soon(&subject, &blob, || put("after")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (_, bytes) = subject.read(&blob).await.expect("it was acknowledged");
    assert_eq!(bytes, "after");
}

/// Counts the swaps of blobs' records.
struct Counting {
    inner: MemoryRegister,
    swaps: AtomicUsize,
}

#[async_trait]
impl Wrapper for Counting {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swaps.fetch_add(
            usize::from(key.as_str().starts_with("b/")),
            Ordering::SeqCst,
        );
        self.inner.compare_and_swap(key, expected, next).await
    }
}

/// The condition was false at the moment at which the writer before committed, and its record says so. A retry waits for its first
/// attempt, which may be that writer.
#[tokio::test(start_paused = true)]
async fn a_conditional_writer_that_was_overtaken_learns_it_without_a_permit() {
    let (store, register) = (
        Faulty::in_memory(false),
        Arc::new(Counting {
            inner: MemoryRegister::unbounded(),
            swaps: AtomicUsize::new(0),
        }),
    );
    let subject = Arc::new(durable_on(&store, Arc::clone(&register) as Arc<dyn Register>).await);
    let blob = blob("c", "b");
    let first = subject.write(&blob, "1").await;
    let if_first = Preconditions::unchanged(first.tag.as_ref());
    let write = |named: Option<&'static str>, body: &'static str| {
        let (subject, blob, preconditions) = (Arc::clone(&subject), blob.clone(), if_first.clone());
        let request = named.map(|name| RequestKey::of(&[name.as_bytes()]));
        tokio::spawn(async move {
            subject
                .store
                .put(
                    &blob,
                    Put {
                        preconditions,
                        request,
                        ..put(body)
                    },
                )
                .await
        })
    };
    let (held, open) = store.hold_write();
    let winner = write(Some("winner"), "2");
    held.await.unwrap();
    let before = register.swaps.load(Ordering::SeqCst);
    let losers: Vec<_> = (0..8).map(|_| write(None, "3")).collect();
    let retry = write(Some("winner"), "2");
    // Virtual time, in which all find the object unchanged and wait.
    tokio::time::sleep(Duration::from_secs(1)).await;
    open.send(()).unwrap();
    let second = winner.await.unwrap().unwrap();
    for loser in losers {
        let error = loser.await.unwrap().expect_err("it was overtaken");
        let expected = StoreErrorKind::PreconditionFailed {
            precondition: Precondition::IfMatch,
            current: second.tag.clone(),
        };
        assert_eq!(error.kind(), &expected);
    }
    let again = retry
        .await
        .unwrap()
        .expect("the retry gets the first answer");
    assert!(again.is_replay && again.tag == second.tag);
    // The winner's commit, and the retry's permit and its return.
    assert_eq!(register.swaps.load(Ordering::SeqCst) - before, 3);
}
