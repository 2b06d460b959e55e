//! The driver on a register whose engine keeps time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Authority, Begin, Command, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Driver, DriverError, EngineTime, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan, Swap,
};
use ifmatch_runtime::{Clock, nonce};

const TTL: Duration = Duration::from_secs(30);
const SECOND: u64 = 1_000_000;

/// The engine of two processes.
#[derive(Debug)]
struct Engine {
    records: MemoryRegister,
    now: AtomicU64,
    /// Error of the time, in microseconds.
    error: AtomicU64,
}

impl Engine {
    fn new() -> Arc<Self> {
        let (now, error) = (AtomicU64::new(1_000_000 * SECOND), AtomicU64::new(1_000));
        Arc::new(Self { records: MemoryRegister::unbounded(), now, error })
    }
}

/// A process's register.
struct Handle(Arc<Engine>);

impl Register for Handle {
    fn time(&self) -> Option<EngineTime> {
        let (now, error) = (self.0.now.load(Ordering::SeqCst), self.0.error.load(Ordering::SeqCst));
        let at = Timestamp::from_micros;
        Some(EngineTime { earliest: at(now - error / 2), latest: at(now + error / 2) })
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.0.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.0.records.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.0.records.scan(scan).await
    }
}

/// A process's own clock, which is wrong.
#[derive(Debug)]
struct Wrong(u64);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0)
    }

    fn sleep(&self, _: Duration) -> impl Future<Output = ()> + Send {
        pending()
    }
}

fn process(engine: &Arc<Engine>, clock: u64) -> Driver<Handle, Wrong> {
    Driver::with_clock(Handle(Arc::clone(engine)), Wrong(clock))
}

async fn begin(process: &Driver<Handle, Wrong>) -> Result<Outcome, DriverError> {
    let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
    let command = Command::Begin(begin.with_authority(Authority::Register));
    Ok(process.apply(&Key::new("k").unwrap(), &command).await?.outcome)
}

/// The second process's own clock is an hour ahead. It must not break the permit before the engine's time has reached the
/// deadline, and must break it then.
#[tokio::test]
async fn permits_end_by_the_time_of_the_engine() {
    let engine = Engine::new();
    let (first, second) = (process(&engine, 1_000_000 * SECOND), process(&engine, 1_003_600 * SECOND));
    let Outcome::Granted(grant) = begin(&first).await.unwrap() else { panic!("there is no other writer") };
    assert_eq!(grant.deadline.micros(), first.now().micros() + 30 * SECOND);
    engine.now.fetch_add(29 * SECOND, Ordering::SeqCst);
    let refused = begin(&second).await.unwrap();
    assert!(matches!(refused, Outcome::Refused(Refusal::InFlight { .. })), "{refused:?}");
    engine.now.fetch_add(2 * SECOND, Ordering::SeqCst);
    assert!(matches!(begin(&second).await.unwrap(), Outcome::Granted(_)), "the permit has ended");
}

/// The handler of a permit ends a tenth of its duration before the permit, by the earliest possible time.
#[tokio::test]
async fn no_permit_is_granted_while_the_time_is_not_precise() {
    let engine = Engine::new();
    let process = process(&engine, 0);
    engine.error.store(3 * SECOND + 2, Ordering::SeqCst);
    let Err(DriverError::Register(error)) = begin(&process).await else { panic!("the error exceeds a tenth") };
    assert_eq!(error.kind(), RegisterErrorKind::Unavailable);
    engine.error.store(3 * SECOND, Ordering::SeqCst);
    assert!(matches!(begin(&process).await.unwrap(), Outcome::Granted(_)));
}
