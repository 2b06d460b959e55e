//! Records that the register removes or must keep, and permits that a killed process left behind.
//!
//! Another [`ObjectBlobs`] on the same register stands in for the killed process: its request never ends. The tests read its permit from
//! the register, which keeps other writers away.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_blob::conformance::leases::{acquire, id};
use ifmatch_blob::conformance::{blob, if_match, put};
use ifmatch_blob::store::{Delete, Put};
use ifmatch_blob_objects::{BackingStore, ConditionSupport, ObjectBlobs, StoreCapabilities};
use ifmatch_core::command::{Authority, Command, Content, LeaseOperation, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Permit, Record};
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::faults::{Fault, Faulty};
use crate::{register, subject, within};

/// Long before any of these tests runs.
const LONG_AGO: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);

/// Adds an old record: a version or a deletion, optionally with an infinite lease.
async fn known(register: &Arc<dyn Register>, key: &str, content: Content, is_leased: bool) {
    let nothing = Preconditions::default();
    let write = Write::new(&Method::PUT, &nothing, content, 1).with_lease(LeaseUse::Read(None));
    let lease =
        LeaseOperation::new(acquire(1).action, &nothing, 2).with_authority(Authority::Register);
    let mut record = Record::unknown()
        .apply(&Command::Write(write), LONG_AGO)
        .next
        .expect("written");
    if is_leased {
        record = record
            .apply(&Command::Lease(lease), LONG_AGO)
            .next
            .expect("leased");
    }
    let before = Record::unknown().revision();
    register
        .compare_and_swap(&Key::new(key).unwrap(), before, Some(&record))
        .await
        .unwrap();
}

/// Records a container that was deleted long ago.
pub(crate) async fn deleted_long_ago(register: &Arc<dyn Register>, key: &str) {
    known(register, key, Content::Absent, false).await;
}

fn version() -> Content {
    Content::Hashed {
        hash: ContentHash::of(b""),
        payload: r#"{"metadata":{}}"#.into(),
    }
}

#[tokio::test]
async fn only_records_that_the_store_repeats_are_removed() {
    let register = register();
    let backing = BackingStore::new(Arc::new(InMemory::new()));
    let blobs = ObjectBlobs::open_durable(backing, register.clone())
        .await
        .unwrap();
    known(&register, "b/c/old", version(), false).await;
    known(&register, "b/c/gone", Content::Absent, false).await;
    known(&register, "b/c/leased", version(), true).await;
    known(&register, "c/gone", Content::Absent, false).await;
    known(&register, "c/empty", version(), false).await;
    let subject = subject(blobs.clone());
    let young = subject.write(&blob("c", "young"), "1").await.tag.unwrap();

    assert_eq!(blobs.forget_idle().await.unwrap(), 3);
    let is_there = async |key: &str| {
        register
            .load(&Key::new(key).unwrap())
            .await
            .unwrap()
            .is_some()
    };
    for (key, stays) in [
        ("b/c/old", false),
        ("b/c/gone", false),
        ("b/c/leased", true),
        ("b/c/young", true),
        ("c/gone", false),
        ("c/empty", true),
        ("c/c", true),
    ] {
        assert_eq!(is_there(key).await, stays, "{key}");
    }
    assert_eq!(blobs.forget_idle().await.unwrap(), 0);
    subject
        .write_if(&blob("c", "young"), if_match(&young), "2")
        .await
        .unwrap();
}

/// Time during which a request without a response may take effect.
const GRACE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Creation,
    Update,
    LeasedUpdate,
    Deletion,
}

async fn permit(register: &Arc<dyn Register>) -> Option<Permit> {
    let record = register.load(&Key::new("b/c/b").unwrap()).await.unwrap()?;
    record.permit(SystemClock.now())
}

/// Begins a write that never ends, and returns its permit.
async fn begin(
    kind: Kind,
    blobs: &ObjectBlobs,
    store: &Faulty,
    register: &Arc<dyn Register>,
) -> Permit {
    let (blobs, blob) = (subject(blobs.clone()), blob("c", "b"));
    blobs.write(&blob, "before").await;
    match kind {
        Kind::Creation => blobs.store.delete(&blob, Delete::default()).await.unwrap(),
        Kind::LeasedUpdate => drop(blobs.store.lease(&blob, acquire(1)).await.unwrap()),
        Kind::Update | Kind::Deletion => {}
    }
    store.schedule([Fault::Stuck]);
    tokio::spawn(async move {
        if kind == Kind::Deletion {
            blobs.store.delete(&blob, Delete::default()).await
        } else {
            let lease = LeaseUse::Write((kind == Kind::LeasedUpdate).then(|| id(1)));
            blobs
                .store
                .put(
                    &blob,
                    Put {
                        lease,
                        ..put("late")
                    },
                )
                .await
                .map(drop)
        }
    });
    within("the write reaches the store", async {
        loop {
            if let Some(permit) = permit(register).await.filter(|_| !store.is_scheduled()) {
                return permit;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn open(
    store: &Arc<Faulty>,
    register: &Arc<dyn Register>,
    ignores_conditions: bool,
) -> ObjectBlobs {
    open_with(store, register, ignores_conditions, |backing| backing)
}

fn open_with(
    store: &Arc<Faulty>,
    register: &Arc<dyn Register>,
    ignores_conditions: bool,
    declare: impl Fn(BackingStore) -> BackingStore,
) -> ObjectBlobs {
    let backing = declare(BackingStore::new(Arc::clone(store) as Arc<dyn ObjectStore>));
    let capability = if ignores_conditions {
        StoreCapabilities {
            create: ConditionSupport::Ignored,
            update: ConditionSupport::Ignored,
            ..StoreCapabilities::FULL
        }
    } else {
        StoreCapabilities::FULL
    };
    ObjectBlobs::trusting(backing, register.clone(), capability).unwrap()
}

#[tokio::test]
async fn a_killed_write_keeps_others_away_for_as_long_as_it_could_replace_theirs() {
    let writes = [
        (Kind::Creation, false, true),
        (Kind::Update, false, true),
        (Kind::Update, true, false),
        (Kind::LeasedUpdate, false, false),
        (Kind::Deletion, false, false),
    ];
    for (kind, ignores_conditions, is_shortened) in writes {
        let what = format!("{kind:?}, conditions are ignored: {ignores_conditions}");
        let (store, register) = (Faulty::in_memory(ignores_conditions), register());
        let earlier = open(&store, &register, ignores_conditions);
        let left = begin(kind, &earlier, &store, &register).await;
        let next = open(&store, &register, ignores_conditions);
        let settled = next.settle_earlier_writes();
        assert_eq!(settled.await.unwrap(), u64::from(is_shortened), "{what}");
        let now = permit(&register).await.expect("others still wait");
        if is_shortened {
            let latest = SystemClock.now().saturating_add(GRACE);
            assert!(
                now.deadline <= latest && now.token == left.token,
                "{what}: {now:?}"
            );
        } else {
            assert_eq!(now.deadline, left.deadline, "{what}");
        }
    }
}

/// Its writes ended with it: none is on its way, whatever would cover it.
#[tokio::test]
async fn a_killed_write_into_a_folder_keeps_others_away_for_no_longer_than_the_grace() {
    for (kind, ignores_conditions) in [
        (Kind::Creation, true),
        (Kind::Update, true),
        (Kind::LeasedUpdate, true),
        (Kind::Deletion, true),
        (Kind::Deletion, false),
    ] {
        let (store, register) = (Faulty::in_memory(ignores_conditions), register());
        let earlier = open(&store, &register, ignores_conditions);
        let left = begin(kind, &earlier, &store, &register).await;
        let next = open_with(&store, &register, ignores_conditions, BackingStore::local);
        assert_eq!(next.settle_earlier_writes().await.unwrap(), 1, "{kind:?}");
        let now = permit(&register).await.expect("others wait a little");
        let latest = SystemClock.now().saturating_add(GRACE);
        assert!(
            now.deadline <= latest && now.token == left.token,
            "{kind:?}: {now:?}"
        );
    }
}

/// The scan may go on while this process already writes.
#[tokio::test]
async fn a_write_of_the_process_itself_keeps_its_permit() {
    let (store, register) = (Faulty::in_memory(false), register());
    let blobs = open(&store, &register, false);
    let settled = blobs.settle_earlier_writes();
    let own = begin(Kind::Update, &blobs, &store, &register).await;
    assert_eq!(settled.await.unwrap(), 0);
    assert_eq!(
        permit(&register).await.expect("it goes on").deadline,
        own.deadline
    );
}
