//! Registers with the faults that matter most: the history of their clients shows each one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::history::{self, Violation, ViolationKind};
use ifmatch_register::conformance::workload::{Client, Workload};
use ifmatch_register::{
    Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Swap, Wrapper, async_trait,
};

const CLIENTS: usize = 8;
/// Number of operations of each client in a round.
const STEPS: usize = 200;
/// Maximum number of rounds.
const ROUNDS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// None. Some answers are lost.
    None,
    /// A swap replaces any revision.
    NoRevisionTest,
    /// The record of a conflict is older than the call.
    ConflictFromOlderRead,
    /// An unacknowledged swap is sent again.
    RetryAfterAmbiguous,
    /// Some loads are answered by a replica that lags.
    StaleReads,
}

/// A register in memory with a fault.
struct Wrong {
    inner: MemoryRegister,
    fault: Fault,
    calls: AtomicU64,
    /// The record before the current one of each key.
    past: Mutex<HashMap<Key, Option<Record>>>,
}

impl Wrong {
    fn new(fault: Fault) -> Self {
        Self {
            inner: MemoryRegister::unbounded(),
            fault,
            calls: AtomicU64::new(0),
            past: Mutex::default(),
        }
    }

    fn is_every(&self, calls: u64) -> bool {
        self.calls
            .fetch_add(1, Ordering::SeqCst)
            .is_multiple_of(calls)
    }

    fn past(&self, key: &Key) -> Option<Record> {
        self.past.lock().unwrap().get(key).cloned().flatten()
    }

    /// Swaps. The response of each fifth swap is lost.
    async fn swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let before = self.inner.load(key).await?;
        let expected = match self.fault {
            Fault::NoRevisionTest => before.as_ref().map_or(Revision::NONE, Record::revision),
            _ => expected,
        };
        let swap = self.inner.compare_and_swap(key, expected, next).await?;
        if swap == Swap::Done {
            self.past.lock().unwrap().insert(key.clone(), before);
        }
        if self.is_every(5) {
            Err(RegisterErrorKind::Ambiguous.into())
        } else {
            Ok(swap)
        }
    }
}

#[async_trait]
impl Wrapper for Wrong {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        if self.fault == Fault::StaleReads && self.is_every(3) {
            return Ok(self.past(key));
        }
        self.inner.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let swap = match self.swap(key, expected, next).await {
            Err(_) if self.fault == Fault::RetryAfterAmbiguous => {
                self.swap(key, expected, next).await
            }
            answered => answered,
        };
        match swap? {
            Swap::Conflict(_) if self.fault == Fault::ConflictFromOlderRead => {
                Ok(Swap::Conflict(self.past(key)))
            }
            swap => Ok(swap),
        }
    }
}

/// Runs clients for a round, and checks their history.
async fn round(fault: Fault) -> Result<(), Violation> {
    let (register, ticks) = (Arc::new(Wrong::new(fault)), Arc::new(AtomicU64::new(0)));
    let workload = Workload::new("mutation", 3, CLIENTS);
    let run = |mut client: Client| {
        let (register, ticks) = (Arc::clone(&register), Arc::clone(&ticks));
        tokio::spawn(async move {
            for _ in 0..STEPS {
                client
                    .step(&*register, || ticks.fetch_add(1, Ordering::SeqCst))
                    .await;
                tokio::task::yield_now().await;
            }
            client.into_history()
        })
    };
    let running: Vec<_> = (0..CLIENTS)
        .map(|number| run(workload.client(number)))
        .collect();
    let mut operations = Vec::new();
    for client in running {
        operations.extend(client.await.unwrap());
    }
    history::check(&operations)
}

async fn assert_caught(fault: Fault, expected: &[ViolationKind]) {
    for _ in 0..ROUNDS {
        if let Err(violation) = round(fault).await {
            assert!(
                expected.contains(&violation.kind()),
                "{fault:?}: {violation}"
            );
            return;
        }
    }
    panic!("{fault:?} is not noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correct_register_passes() {
    for _ in 0..ROUNDS {
        round(Fault::None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_revision_test_is_noticed() {
    use ViolationKind::{Early, Fork, Stale, Unwritten};
    assert_caught(Fault::NoRevisionTest, &[Fork, Stale, Early, Unwritten]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_from_an_older_read_is_noticed() {
    assert_caught(Fault::ConflictFromOlderRead, &[ViolationKind::Stale]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_an_ambiguous_answer_is_noticed() {
    assert_caught(Fault::RetryAfterAmbiguous, &[ViolationKind::Refuted]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_reads_are_noticed() {
    assert_caught(Fault::StaleReads, &[ViolationKind::Stale]).await;
}
