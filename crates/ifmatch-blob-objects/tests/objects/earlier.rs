//! Writes that a killed process left behind.
//!
//! The earlier process is another [`ObjectBlobs`] over the same register, whose request never ends. The tests look at the permit in the
//! register, which keeps other writers away.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::conformance::leases::{acquire, id};
use ifmatch_blob::conformance::{blob, put};
use ifmatch_blob::store::{Delete, Put};
use ifmatch_blob_objects::{Backing, Capability, ObjectBlobs, Support};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::record::Permit;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::{Clock, SystemClock};
use object_store::ObjectStore;

use crate::faults::{Fault, Faulty};
use crate::{register, subject};

/// Far longer than a write takes to reach the store.
const LIMIT: Duration = Duration::from_mins(1);
/// Time during which a request without an answer may take effect.
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
async fn begin(kind: Kind, blobs: &ObjectBlobs, store: &Faulty, register: &Arc<dyn Register>) -> Permit {
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
            blobs.store.put(&blob, Put { lease, ..put("late") }).await.map(drop)
        }
    });
    let held = async {
        loop {
            if let Some(permit) = permit(register).await.filter(|_| !store.is_scheduled()) {
                return permit;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, held).await.expect("the write reaches the store within a minute")
}

fn open(store: &Arc<Faulty>, register: &Arc<dyn Register>, ignores_conditions: bool) -> ObjectBlobs {
    let backing = Backing::new(Arc::clone(store) as Arc<dyn ObjectStore>);
    let capability = if ignores_conditions {
        Capability { create: Support::Ignored, update: Support::Ignored, ..Capability::FULL }
    } else {
        Capability::FULL
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
            assert!(now.deadline <= latest && now.token == left.token, "{what}: {now:?}");
        } else {
            assert_eq!(now.deadline, left.deadline, "{what}");
        }
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
    assert_eq!(permit(&register).await.expect("it goes on").deadline, own.deadline);
}
