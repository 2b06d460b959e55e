//! Registers that lose an answer or list late: no completed change is reported as failed, and no write outlives its
//! container.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Delete, HeaderChange, ListQuery, MissingContainer, Put, StoreError, StoreErrorKind};
use ifmatch_blob_objects::{Backing, Capability, ObjectBlobs, OpenErrorKind};
use ifmatch_core::lease::{BreakPeriod, Lease, LeaseAction, LeaseFailure, LeaseUse, SeenLease};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Epoch, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan, Swap, Wrapper, async_trait,
};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::faults::{Fault, Faulty};
use crate::{durable_on, register, subject};
use ifmatch_blob::conformance::headers::set;
use ifmatch_blob::conformance::leases::{acquire, id, request};
use ifmatch_blob::conformance::{Subject, blob, kind, put};

/// A register with faults injected by a test.
#[derive(Clone)]
struct Failing {
    inner: Arc<MemoryRegister>,
    /// Failures of the next swaps.
    next: Arc<Mutex<VecDeque<Option<RegisterErrorKind>>>>,
    /// `true` if an ambiguous swap breaks the connection.
    breaks: Arc<AtomicBool>,
    /// `true` if loads fail because the connection broke.
    is_down: Arc<AtomicBool>,
    /// `true` if scans show no records.
    is_blind: Arc<AtomicBool>,
    /// The latest revision that a failover may have lost.
    lost: Arc<AtomicU64>,
}

impl Failing {
    fn new() -> Self {
        let inner = Arc::new(MemoryRegister::unbounded());
        let breaks = Arc::new(AtomicBool::new(true));
        Self {
            inner,
            next: Arc::default(),
            breaks,
            is_down: Arc::default(),
            is_blind: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// Loses the answer to the next swap, which takes place. The register remains available.
    fn lose_answer(&self) {
        self.breaks.store(false, Ordering::SeqCst);
        self.fail(RegisterErrorKind::Ambiguous);
    }

    /// Makes the next swap fail. An ambiguous one takes place, and the register is unavailable afterwards.
    fn fail(&self, kind: RegisterErrorKind) {
        self.next.lock().unwrap().push_back(Some(kind));
    }

    /// Makes the register answer again.
    fn recover(&self) {
        assert!(self.next.lock().unwrap().is_empty(), "a swap was to fail");
        self.is_down.store(false, Ordering::SeqCst);
    }
}

#[async_trait]
impl Wrapper for Failing {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    fn engine(&self) -> Engine {
        let lost = self.lost.load(Ordering::SeqCst);
        let epoch = Epoch { number: u64::from(lost > 0), lost: Revision::new(lost) };
        Engine { epoch, ..self.inner.engine() }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(RegisterErrorKind::Unavailable.into());
        }
        self.inner.load(key).await
    }

    async fn compare_and_swap(&self, key: &Key, at: Revision, next: Option<&Record>) -> Result<Swap, RegisterError> {
        let failure = self.next.lock().unwrap().pop_front().flatten();
        match failure {
            None => self.inner.compare_and_swap(key, at, next).await,
            Some(RegisterErrorKind::Ambiguous) => {
                assert_eq!(self.inner.compare_and_swap(key, at, next).await?, Swap::Done);
                self.is_down.store(self.breaks.load(Ordering::SeqCst), Ordering::SeqCst);
                Err(RegisterErrorKind::Ambiguous.into())
            }
            Some(kind) => Err(kind.into()),
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        if self.is_blind.load(Ordering::SeqCst) { Ok(Vec::new()) } else { self.inner.scan(scan).await }
    }
}

/// A change decided by a single swap of the register.
type Change = (&'static str, fn(&Subject) -> BoxFuture<'_, Result<(), StoreError>>);

const CHANGES: [Change; 10] = [
    ("acquire", |subject| Box::pin(async { subject.store.lease(&blob("c", "free"), acquire(2)).await.map(drop) })),
    ("release", |subject| Box::pin(lease(subject, LeaseAction::Release(id(1))))),
    ("change", |subject| Box::pin(lease(subject, LeaseAction::Change { id: id(1), proposed: id(2) }))),
    ("break", |subject| {
        Box::pin(lease(subject, LeaseAction::Break { period: BreakPeriod::from_seconds(0), token: None }))
    }),
    ("acquire the container", |subject| {
        Box::pin(async { subject.store.lease_container(&blob("c", "free").container, acquire(2)).await.map(drop) })
    }),
    ("release the container", |subject| Box::pin(lease_container(subject, LeaseAction::Release(id(1))))),
    ("break the container's lease", |subject| {
        Box::pin(lease_container(subject, LeaseAction::Break { period: BreakPeriod::from_seconds(0), token: None }))
    }),
    ("create a container", |subject| {
        Box::pin(async {
            subject.store.create_container(&blob("new", "x").container, BlobHeaders::default()).await.map(drop)
        })
    }),
    ("change a container's metadata", |subject| {
        Box::pin(async {
            let metadata = [("owner".into(), FieldText::new("me").unwrap())].into();
            let change = set(HeaderChange::Metadata(metadata));
            subject.store.set_container(&blob("c", "free").container, change).await.map(drop)
        })
    }),
    ("delete a container", |subject| {
        Box::pin(async { subject.store.delete_container(&blob("c", "free").container, Delete::default()).await })
    }),
];

async fn lease(subject: &Subject, action: LeaseAction) -> Result<(), StoreError> {
    subject.store.lease(&blob("c", "held"), request(action)).await.map(drop)
}

async fn lease_container(subject: &Subject, action: LeaseAction) -> Result<(), StoreError> {
    subject.store.lease_container(&blob("held", "x").container, request(action)).await.map(drop)
}

/// Returns a lease without the time of its reading.
fn lease_of(seen: Option<SeenLease>) -> Option<Lease> {
    seen.map(|seen| seen.lease)
}

/// All state affected by the changes.
async fn seen(subject: &Subject) -> String {
    let mut seen = Vec::new();
    for name in ["free", "held"] {
        seen.push(format!("{:?}", subject.head(&blob("c", name)).await.map(|info| lease_of(info.lease))));
    }
    for name in ["c", "held", "new"] {
        let info = subject.store.container(&blob(name, "x").container).await.unwrap();
        seen.push(format!("{:?}", info.map(|info| (lease_of(info.lease), info.headers))));
    }
    seen.join("\n")
}

#[tokio::test]
async fn a_change_with_a_lost_answer_is_not_reported_as_failed() {
    for (what, change) in CHANGES {
        let register = Failing::new();
        let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
        subject.write(&blob("c", "free"), "1").await;
        subject.write(&blob("c", "held"), "1").await;
        subject.store.lease(&blob("c", "held"), acquire(1)).await.unwrap();
        let held = blob("held", "x").container;
        subject.store.create_container(&held, BlobHeaders::default()).await.unwrap();
        subject.store.lease_container(&held, acquire(1)).await.unwrap();

        let before = seen(&subject).await;
        register.fail(RegisterErrorKind::Unavailable);
        assert_eq!(kind(change(&subject).await), StoreErrorKind::Unavailable, "{what}");
        register.recover();
        assert_eq!(seen(&subject).await, before, "{what}: it was called undone");

        register.fail(RegisterErrorKind::Ambiguous);
        assert_eq!(kind(change(&subject).await), StoreErrorKind::OutcomeUnknown, "{what}");
        register.recover();
        assert_ne!(seen(&subject).await, before, "{what}: it took place");
    }
}

#[tokio::test]
async fn a_container_counts_as_created_if_its_record_is_found_after_a_lost_answer() {
    let register = Failing::new();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let container = blob("new", "x").container;
    register.lose_answer();
    subject.store.create_container(&container, BlobHeaders::default()).await.expect("its record exists");
    register.recover();
    assert!(subject.store.container(&container).await.unwrap().is_some());
}

/// By memory, a late write could add a blob to a deleted container there.
#[tokio::test]
async fn without_metadata_a_memory_of_containers_is_refused() {
    let backing = |lasts| Backing::new(Arc::new(InMemory::new())).with_container_memory(lasts);
    let capability = Capability { metadata: false, ..Capability::FULL };
    let error = ObjectBlobs::trusting(backing(Duration::from_secs(1)), register(), capability).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Settings);
    assert!(error.to_string().contains("memory of containers"), "{error}");
    assert!(ObjectBlobs::trusting(backing(Duration::ZERO), register(), capability).is_ok());
    assert!(ObjectBlobs::trusting(backing(Duration::from_secs(1)), register(), Capability::FULL).is_ok());
}

/// A store without metadata cannot distinguish a late blob from one of the next container.
#[tokio::test(start_paused = true)]
async fn without_metadata_a_deletion_waits_for_writes_with_a_permit() {
    let store = Faulty::in_memory(false);
    let backing = Backing::new(Arc::clone(&store) as Arc<dyn ObjectStore>);
    let capability = Capability { metadata: false, ..Capability::FULL };
    let subject = subject(ObjectBlobs::trusting(backing, register(), capability).expect("opens"));
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    let (begun, go_on) = store.hold_write();
    let late = subject.store.put(&blob, put("late"));
    let deletion = async {
        begun.await.expect("the write is on its way");
        let mut deleted = subject.store.delete_container(&blob.container, Delete::default());
        tokio::select! {
            biased;
            _ = &mut deleted => panic!("the container was deleted before the write had ended"),
            // Time is simulated: it passes once the deletion does nothing but wait.
            () = tokio::time::sleep(Duration::from_secs(5)) => go_on.send(()).expect("the write is held"),
        }
        deleted.await.expect("the write has ended");
    };
    let (_, ()) = futures_util::join!(late, deletion);
    store.head(&"c/b".into()).await.expect_err("the blob outlived its container");
}

/// A write with a permit is on its way to the store when the container is deleted without noticing it.
async fn overtaken(is_update: bool, comes_again: bool) {
    let (store, register) = (Faulty::in_memory(false), Failing::new());
    let subject = durable_on(&store, Arc::new(register.clone())).await;
    let (blob, what) = (blob("c", "b"), format!("update: {is_update}, created again: {comes_again}"));
    subject.store.create_container(&blob.container, BlobHeaders::default()).await.unwrap();
    if is_update {
        subject.write(&blob, "before").await;
    }
    let (begun, go_on) = store.hold_write();
    let late = subject.store.put(&blob, Put { container: MissingContainer::Refuse, ..put("late") });
    let deletion = async {
        begun.await.expect("the write is on its way");
        register.is_blind.store(true, Ordering::SeqCst);
        subject.store.delete_container(&blob.container, Delete::default()).await.expect("it sees no write");
        register.is_blind.store(false, Ordering::SeqCst);
        if comes_again {
            subject.store.create_container(&blob.container, BlobHeaders::default()).await.expect("it is gone");
        }
        go_on.send(()).expect("the write is held");
    };
    let (written, ()) = futures_util::join!(late, deletion);
    // A creation took place before the deletion; an update finds nothing to replace.
    assert_eq!(written.is_ok(), !is_update, "{what}: {written:?}");
    assert!(subject.read(&blob).await.is_none(), "{what}: the blob outlived its container");
    let container = subject.store.container(&blob.container).await.unwrap();
    assert_eq!(container.is_some(), comes_again, "{what}");
    let listed = subject.store.list(&blob.container, &all()).await.unwrap().map(|page| page.items);
    assert_eq!(listed, comes_again.then(Vec::new), "{what}");
}

fn all() -> ListQuery {
    ListQuery { prefix: String::new(), after: None, limit: 100, leases: true, delimiter: None }
}

#[tokio::test]
async fn a_stale_scan_lets_no_write_past_a_deletion() {
    for is_update in [false, true] {
        for comes_again in [false, true] {
            overtaken(is_update, comes_again).await;
        }
    }
}

/// The deletion does not find the record of the leased blob.
#[tokio::test]
async fn a_stale_scan_leaves_no_lease_in_the_next_container() {
    let register = Failing::new();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let blob: BlobPath = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    register.is_blind.store(true, Ordering::SeqCst);
    subject.store.delete_container(&blob.container, Delete::default()).await.unwrap();
    register.is_blind.store(false, Ordering::SeqCst);

    assert!(subject.write(&blob, "after").await.created, "a lease of a deleted blob keeps writers off");
    assert_eq!(subject.head(&blob).await.unwrap().lease, None);
    subject.store.lease(&blob, acquire(2)).await.expect("it is free");
}

/// The register was restored, or another server has taken over: the records of containers are used as they are found, since
/// nothing else knows them.
#[tokio::test]
async fn containers_outlast_a_failover_of_the_register() {
    let register = Failing::new();
    let subject = durable_on(&Faulty::in_memory(false), Arc::new(register.clone())).await;
    let (old, empty) = (blob("c", "old"), blob("empty", "x").container);
    subject.write(&old, "1").await;
    let metadata = [("owner".into(), FieldText::new("me").unwrap())].into();
    let headers = BlobHeaders { metadata, ..BlobHeaders::default() };
    subject.store.create_container(&empty, headers.clone()).await.unwrap();
    subject.store.lease(&old, acquire(1)).await.unwrap();
    let later = SystemClock.now().saturating_add(Duration::from_mins(1));
    register.lost.store(Revision::NONE.next(later).get(), Ordering::SeqCst);

    assert_eq!(subject.store.container(&empty).await.unwrap().expect("it still exists").headers, headers);
    assert!(subject.write(&blob("c", "new"), "2").await.created);
    assert_eq!(kind(subject.store.put(&old, put("3")).await), StoreErrorKind::LeaseFailed(LeaseFailure::IdMissing));
    let change = set(HeaderChange::Metadata([("owner".into(), FieldText::new("you").unwrap())].into()));
    subject.store.set_container(&empty, change).await.expect("its record can be changed");
    subject.store.delete_container(&empty, Delete::default()).await.expect("it can be deleted");
    assert!(subject.store.container(&empty).await.unwrap().is_none());
}

/// The deletion has no answer, and may still reach the blob of the next holder once the lease has ended. The register fails
/// meanwhile: the permit is prolonged, and given back, when it answers again.
#[tokio::test]
async fn a_permit_is_prolonged_although_the_register_fails() {
    let (store, register) = (Faulty::in_memory(false), Failing::new());
    let subject = durable_on(&store, Arc::new(register.clone())).await;
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    subject.store.lease(&blob, acquire(1)).await.unwrap();
    let soon = BreakPeriod::from_seconds(2).unwrap();
    subject.store.lease(&blob, request(LeaseAction::Break { period: Some(soon), token: None })).await.unwrap();
    store.schedule([Fault::LostRequest]);
    // The permit is granted. Its renewal fails once, and its return twice.
    let unavailable = Some(RegisterErrorKind::Unavailable);
    register.next.lock().unwrap().extend([None, unavailable, None, unavailable, unavailable]);
    let lease = LeaseUse::Write(Some(id(1)));
    let error = subject.store.delete(&blob, Delete { lease, ..Delete::default() }).await.unwrap_err();
    assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
    let key = Key::new("b/c/b").unwrap();
    let record = register.inner.load(&key).await.unwrap().unwrap();
    let permit = record.permit(SystemClock.now()).expect("it may still take effect");
    assert!(record.lease().unwrap().end().unwrap() < permit.deadline, "{record:?}");
    let is_doubted = async || register.inner.load(&key).await.unwrap().unwrap().revision() > record.revision();
    for attempt in 0.. {
        assert!(attempt < 3_000, "the permit is not given back within 30 s");
        if is_doubted().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
