//! A register on two engines whose clocks differ: one times the records of containers, the other those of blobs.
//!
//! ## Interleavings
//!
//! - **A write into a container that is being deleted.** The writer asks the container's record if it exists, and the deleter
//!   asks each blob's record for a permit. Either compares that record's deadline with the time of its own engine.
//! - **A deleter whose turn has ended.** The engine of the container's record times the turn, even while the deleter waits for
//!   permits of blobs.
//! - **A lease that is shown.** It is read with the time of the engine that keeps it, in listings of many keys, too.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::conformance::leases::{id, request};
use ifmatch_blob::conformance::{self, Subject, blob};
use ifmatch_blob::store::ListQuery;
use ifmatch_blob_objects::ObjectBlobs;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseState, SeenLease};
use ifmatch_register::{Engine, EngineTime, MemoryRegister, Register, Wrapper};
use ifmatch_runtime::{Clock, SystemClock};

use crate::{memory, subject};

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
