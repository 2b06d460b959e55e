//! A register whose engines have clocks that differ: the records of containers and of blobs end by the time of their own.
//!
//! # Interleavings
//!
//! - **A write into a container that is being deleted.** The writer asks the container's record if it exists, and the deleter
//!   asks each blob's record for a permit. Either compares that record's deadline with the time of its own engine.
//! - **A deleter whose turn has ended.** The turn is in the container's record, and ends by the time of its engine, even while
//!   its deleter waits for permits of blobs.
//! - **A lease that is shown.** It is read with the time of the engine that keeps it, in listings of many keys, too.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_blob::conformance::leases::{id, request};
use ifmatch_blob::conformance::{self, Subject, blob};
use ifmatch_blob::store::ListQuery;
use ifmatch_blob_objects::ObjectBlobs;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseAction, LeaseDuration, LeaseState, SeenLease};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{async_trait, Register, EngineTime, Key, MemoryRegister, RegisterError, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};

use super::{memory, subject};

/// Longer than every permit, turn and lease with an end.
const SKEW: Duration = Duration::from_mins(10);

/// The engine's time of one kind of keys is ahead of this process's, and that of the other kind behind it.
struct Skewed {
    records: MemoryRegister,
    /// The first letter of the keys with a time ahead.
    ahead: char,
}

#[async_trait]
impl Register for Skewed {
    fn time(&self, key: &Key) -> Option<EngineTime> {
        let (now, skew) = (SystemClock.now(), u64::try_from(SKEW.as_micros()).unwrap());
        let is_ahead = key.as_str().starts_with(self.ahead);
        let at = if is_ahead { now.micros() + skew } else { now.micros() - skew };
        Some(EngineTime { earliest: Timestamp::from_micros(at), latest: Timestamp::from_micros(at) })
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.records.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.records.scan(scan).await
    }
}

async fn skewed(ahead: char) -> Subject {
    let register = Arc::new(Skewed { records: MemoryRegister::unbounded(), ahead });
    let blobs = ObjectBlobs::open_durable(memory(), register).await.expect("opens");
    Subject { leases: true, store: Arc::new(blobs.clone()), ..subject(blobs) }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_and_blobs_with_different_clocks_conform() {
    for ahead in ['b', 'c'] {
        conformance::check(&skewed(ahead).await).await;
    }
}

#[tokio::test]
async fn a_lease_is_shown_by_the_clock_that_ends_it() {
    let for_15_seconds = || {
        let duration = LeaseDuration::from_seconds(15).unwrap();
        request(LeaseAction::Acquire { id: id(1), duration, holder: None })
    };
    let all = ListQuery { prefix: String::new(), after: None, limit: 10 };
    for ahead in ['b', 'c'] {
        let subject = skewed(ahead).await;
        let path = blob("shown", "a");
        subject.write(&path, "a").await;
        subject.store.lease(&path, for_15_seconds()).await.unwrap();
        subject.store.lease_container(&path.container, for_15_seconds()).await.unwrap();
        let blobs = subject.store.list(&path.container, &all).await.unwrap().unwrap();
        let containers = subject.store.containers(&all).await.unwrap();
        for seen in [
            subject.head(&path).await.unwrap().lease,
            blobs.items[0].info.lease,
            subject.store.container(&path.container).await.unwrap().unwrap().lease,
            containers.items[0].info.lease,
        ] {
            let SeenLease { lease, at } = seen.expect("it was acquired");
            assert_eq!((lease.state(at), lease.duration()), (LeaseState::Leased, LeaseDuration::Seconds(15)));
            assert!(at.until(lease.end().unwrap()) <= Duration::from_secs(15), "{lease:?} at {at:?}");
        }
    }
}
