//! Registers that lose a response or list late: no completed change is reported as failed, and no write outlives its
//! container.
//!
//! Reads while the register doesn't answer about the container.
//!
//! ## Interleavings
//!
//! - **The register hangs.** A read goes on with the previous response, or as if all objects were blobs, and later reads don't
//!   ask again.
//! - **A response from before a deletion** arrives after it. Later reads must not rely on it.
//! - **A container that is being deleted**, as a read has seen, when the register hangs: its blobs stay hidden.
//!
//! A register whose engines have clocks that differ: the records of containers and of blobs end by the time of their own.
//!
//! ## Interleavings
//!
//! - **A write into a container that is being deleted.** The writer asks the container's record if it exists, and the deleter
//!   asks each blob's record for a permit. Either compares that record's deadline with the time of its own engine.
//! - **A deleter whose turn has ended.** The turn is in the container's record, and ends by the time of its engine, even while
//!   its deleter waits for permits of blobs.
//! - **A lease that is shown.** It is read with the time of the engine that keeps it, in listings of many keys, too.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{self, Subject, blob, kind, put};
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    Delete, HeaderChange, ListQuery, MissingContainer, Put, Reading, RequestKey, StoreError,
    StoreErrorKind,
};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs, OpenErrorKind, StoreCapabilities};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{
    BreakPeriod, Lease, LeaseAction, LeaseDuration, LeaseFailure, LeaseState, LeaseUse, SeenLease,
};
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
use tokio::sync::watch;

use crate::faults::{Fault, Faulty};
use crate::{durable_on, memory, register, subject};

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
    let blob: BlobPath = blob("c", "b");
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
    while let Err(error) = subject.store.put(&blob, put("after")).await {
        assert!(
            matches!(error.kind(), StoreErrorKind::InFlight { .. }),
            "{error}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (_, bytes) = subject.read(&blob).await.expect("it was acknowledged");
    assert_eq!(bytes, "after");
}

/// A register whose answers about containers can be held back.
struct Slow {
    inner: MemoryRegister,
    /// Numbers of the questions whose answers are held back.
    held: watch::Sender<Range<usize>>,
    /// Number of questions about containers.
    asked: AtomicUsize,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryRegister::unbounded(),
            held: watch::Sender::new(0..0),
            asked: AtomicUsize::new(0),
        })
    }

    /// Holds back all answers from now on.
    fn hang(&self) {
        self.held.send_replace(0..usize::MAX);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Wrapper for Slow {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let record = self.inner.load(key).await;
        if key.as_str().starts_with("c/") {
            let number = self.asked.fetch_add(1, Ordering::SeqCst);
            self.held
                .subscribe()
                .wait_for(|held| !held.contains(&number))
                .await
                .expect("the sender is kept");
        }
        record
    }
}

/// Another process on the same store and register. Its reads reuse responses for this time.
async fn process(store: &Arc<Faulty>, register: &Arc<Slow>, memory: Duration) -> Subject {
    let backing =
        BackingStore::new(Arc::clone(store) as Arc<dyn ObjectStore>).with_container_memory(memory);
    subject(
        ObjectBlobs::open_durable(backing, Arc::clone(register) as Arc<dyn Register>)
            .await
            .expect("opens"),
    )
}

/// Answers are never recent, but are kept.
const SHORT: Duration = Duration::from_micros(1);
const LONG: Duration = Duration::from_hours(1);

/// Each container that only the store knows takes a request to the register.
#[tokio::test]
async fn a_page_of_containers_asks_for_no_container_behind_it() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let process = process(&store, &register, Duration::ZERO).await;
    let names: Vec<_> = (10..30).map(|number| format!("c{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        if number % 3 == 0 {
            process.write(&blob(name, "ours"), "1").await;
        } else {
            let theirs = format!("{name}/theirs");
            store.put(&theirs.into(), "1".into()).await.unwrap();
        }
    }
    let (mut found, mut query) = (Vec::new(), ListQuery::first(4));
    loop {
        let before = register.asked();
        let page = process.store.containers(&query).await.unwrap();
        assert!(register.asked() - before <= 5, "one more than the page");
        found.extend(page.items.iter().map(|entry| entry.name.to_string()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, names);
}

#[tokio::test(start_paused = true)]
async fn a_read_goes_on_without_a_register_that_hangs() {
    for is_cold in [true, false] {
        let (store, register) = (Faulty::in_memory(false), Slow::new());
        let reader = process(&store, &register, if is_cold { LONG } else { SHORT }).await;
        let blob = blob("c", "b");
        if is_cold {
            process(&store, &register, LONG)
                .await
                .write(&blob, "1")
                .await;
        } else {
            reader.write(&blob, "1").await;
            assert_eq!(reader.read(&blob).await.unwrap().1, "1");
        }
        register.hang();
        assert_eq!(reader.read(&blob).await.unwrap().1, "1");
        if is_cold {
            let asked = register.asked();
            assert_eq!(reader.read(&blob).await.unwrap().1, "1");
            assert_eq!(register.asked(), asked, "the failure is remembered");
        }
    }
}

/// Leaves an object of a late write in a deleted container, which a process with a previous response hides.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_deletion_is_not_stored_after_it() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [subject, writer] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let (late, other) = (blob("c", "late"), blob("c", "other"));
    writer.write(&other, "1").await;
    store.schedule([Fault::Held]);
    assert_eq!(
        kind(writer.store.put(&late, put("late")).await),
        StoreErrorKind::OutcomeUnknown
    );

    // The read has its record, and the response arrives after the deletion.
    let asked = register.asked();
    register.held.send_replace(asked..asked + 1);
    let delete = async {
        while register.asked() == asked {
            tokio::task::yield_now().await;
        }
        subject
            .store
            .delete_container(&other.container, Delete::default())
            .await
            .expect("it exists");
        register.held.send_replace(0..0);
    };
    futures_util::join!(subject.read(&other), delete);
    store
        .release()
        .await
        .expect("there is no object of this name");
    assert!(
        subject.read(&late).await.is_none(),
        "an object of the deleted container"
    );
}

#[tokio::test(start_paused = true)]
async fn blobs_of_a_container_that_is_being_deleted_stay_hidden() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [deleter, reader] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    deleter.write(&blob, "1").await;
    store.schedule([Fault::Refused]);
    deleter
        .store
        .delete_container(&blob.container, Delete::default())
        .await
        .expect_err("an object is left");
    assert!(
        store.get(&"c/b".into()).await.is_ok(),
        "the object is still there"
    );
    assert!(reader.read(&blob).await.is_none());
    register.hang();
    for process in [&deleter, &reader] {
        for _ in 0..2 {
            let hidden = process.store.open(&blob, Reading::HEAD).await;
            assert_eq!(kind(hidden.map(drop)), StoreErrorKind::Unavailable);
        }
    }
}

/// Writes rely on a response about their container for a second, and a deletion in another process waits for that. In real time, by
/// which the age of answers counts.
#[tokio::test]
async fn a_write_never_reaches_a_container_that_another_process_has_deleted() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [deleter, writer] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    for _ in 0..3 {
        writer.write(&blob, "before").await;
        deleter
            .store
            .delete_container(&blob.container, Delete::default())
            .await
            .expect("it exists");
        let written = writer.write(&blob, "after").await;
        assert!(written.created, "in a new container");
        for process in [&deleter, &writer] {
            assert_eq!(
                process.read(&blob).await.expect("it was acknowledged").1,
                "after"
            );
        }
    }
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

/// Longer than every permit, turn and lease with an end.
const SKEW: Duration = Duration::from_mins(10);

/// The engine's time is ahead of this process's, or behind it.
struct Skewed {
    records: MemoryRegister,
    is_ahead: bool,
}

impl Wrapper for Skewed {
    fn inner(&self) -> &dyn Register {
        &self.records
    }

    fn engine(&self) -> Engine {
        let (now, skew) = (SystemClock.now(), u64::try_from(SKEW.as_micros()).unwrap());
        let at = Timestamp::from_micros(if self.is_ahead {
            now.micros() + skew
        } else {
            now.micros() - skew
        });
        Engine {
            time: Some(EngineTime {
                earliest: at,
                latest: at,
            }),
            ..Engine::default()
        }
    }
}

async fn skewed(is_ahead: bool) -> Subject {
    let register = Arc::new(Skewed {
        records: MemoryRegister::unbounded(),
        is_ahead,
    });
    let blobs = ObjectBlobs::open_durable(memory(), register)
        .await
        .expect("opens");
    Subject {
        leases: true,
        store: Arc::new(blobs.clone()),
        ..subject(blobs)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_on_an_engine_with_another_clock_conform() {
    for is_ahead in [false, true] {
        conformance::check(&skewed(is_ahead).await).await;
    }
}

#[tokio::test]
async fn a_lease_is_shown_by_the_clock_that_ends_it() {
    let for_15_seconds = || {
        let duration = LeaseDuration::from_seconds(15).unwrap();
        request(LeaseAction::Acquire {
            id: id(1),
            duration,
            holder: None,
        })
    };
    let all = ListQuery {
        leases: true,
        ..ListQuery::first(10)
    };
    for is_ahead in [false, true] {
        let subject = skewed(is_ahead).await;
        let path = blob("shown", "a");
        subject.write(&path, "a").await;
        subject.store.lease(&path, for_15_seconds()).await.unwrap();
        subject
            .store
            .lease_container(&path.container, for_15_seconds())
            .await
            .unwrap();
        let blobs = subject
            .store
            .list(&path.container, &all)
            .await
            .unwrap()
            .unwrap();
        let containers = subject.store.containers(&all).await.unwrap();
        for seen in [
            subject.head(&path).await.unwrap().lease,
            blobs.items[0].info.lease,
            subject
                .store
                .container(&path.container)
                .await
                .unwrap()
                .unwrap()
                .lease,
            containers.items[0].info.lease,
        ] {
            let SeenLease { lease, at } = seen.expect("it was acquired");
            assert_eq!(
                (lease.state(at), lease.duration()),
                (LeaseState::Leased, LeaseDuration::Seconds(15))
            );
            assert!(
                at.until(lease.end().unwrap()) <= Duration::from_secs(15),
                "{lease:?} at {at:?}"
            );
        }
    }
}

/// A process creates a blob of which it has an outdated record. Another process has since replaced and deleted the
/// blob, but got no response to the deletion. The blob is gone while the creation waits for the deletion to end, so the
/// creation must not be refused because the blob exists.
#[tokio::test(start_paused = true)]
async fn an_outdated_record_refuses_no_creation() {
    let (store, register) = (Faulty::in_memory(false), Slow::new());
    let [outdated, other] = [
        process(&store, &register, LONG).await,
        process(&store, &register, LONG).await,
    ];
    let blob = blob("c", "b");
    outdated.write(&blob, "1").await;
    other.write(&blob, "2").await;
    store.schedule([Fault::Delayed]);
    assert_eq!(
        kind(other.store.delete(&blob, Delete::default()).await),
        StoreErrorKind::OutcomeUnknown
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        outdated.read(&blob).await.is_none(),
        "the deletion took effect"
    );
    let created = outdated.write_if(&blob, Preconditions::absent(), "3").await;
    assert!(created.expect("there is no blob").created);
}
