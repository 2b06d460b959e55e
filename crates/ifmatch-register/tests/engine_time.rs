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
    Driver, DriverError, EngineClock, EngineTime, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind,
    Scan, Swap,
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

/// A process's own clock.
#[derive(Debug)]
struct Steady(tokio::time::Instant);

impl Clock for Steady {
    fn now(&self) -> Timestamp {
        Timestamp::default().saturating_add(self.0.elapsed())
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(duration)
    }
}

/// The engine's time may stand still, for example without samples.
#[tokio::test(start_paused = true)]
async fn patience_ends_by_the_processs_own_clock() {
    let engine = Engine::new();
    assert!(matches!(begin(&process(&engine, 0)).await.unwrap(), Outcome::Granted(_)));
    let clock = Steady(tokio::time::Instant::now());
    let second = Driver::with_clock(Handle(engine), clock).with_patience(Duration::from_secs(2));
    let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
    let command = Command::Begin(begin.with_authority(Authority::Register));
    let key = Key::new("k").unwrap();
    let waited = tokio::time::timeout(Duration::from_mins(1), second.apply_in_turn(&key, &command)).await;
    let outcome = waited.expect("the patience is over").unwrap().outcome;
    assert!(matches!(outcome, Outcome::Refused(Refusal::InFlight { .. })), "{outcome:?}");
}

/// A process's register, with the engine's time from samples.
struct Sampled(Arc<Engine>, EngineClock);

impl Sampled {
    const LOCAL: Timestamp = Timestamp::from_micros(SECOND);

    fn sample(&self) {
        self.1.sample(Self::LOCAL, Self::LOCAL, Timestamp::from_micros(self.0.now.load(Ordering::SeqCst)));
    }
}

impl Register for Sampled {
    fn time(&self) -> Option<EngineTime> {
        self.1.time(Self::LOCAL)
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.sample();
        self.0.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.sample();
        self.0.records.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.0.records.scan(scan).await
    }
}

/// Another server has taken over, with a clock that is ten minutes behind. A process that knows the former time must not
/// break a permit of one that has started since.
#[tokio::test]
async fn a_permit_is_not_broken_early_after_the_engines_clock_was_set_back() {
    let engine = Engine::new();
    let process = || Driver::with_clock(Sampled(Arc::clone(&engine), EngineClock::default()), Wrong(0));
    let (before, key) = (process(), Key::new("k").unwrap());
    before.load(&key).await.unwrap();
    engine.now.fetch_sub(600 * SECOND, Ordering::SeqCst);
    let after = process();
    let begin = async |process: &Driver<Sampled, Wrong>| {
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
        let command = Command::Begin(begin.with_authority(Authority::Register));
        process.apply(&key, &command).await.unwrap().outcome
    };
    let granted = begin(&after).await;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    let refused = begin(&before).await;
    assert!(matches!(refused, Outcome::Refused(Refusal::InFlight { .. })), "{refused:?}");
}
