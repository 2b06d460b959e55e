//! The driver on a register whose engine keeps time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{
    Authority, Begin, Command, Content, LeaseOperation, Outcome, Refusal, Write,
};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{LeaseAction, LeaseConflict, LeaseDuration, LeaseId, LeaseUse};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Driver, DriverError, Engine, EngineClock, EngineTime, Key, MemoryRegister, Register,
    RegisterError, RegisterErrorKind, Swap, Wrapper, async_trait,
};
use ifmatch_runtime::{Clock, ManualClock, nonce};

const TTL: Duration = Duration::from_secs(30);
const SECOND: u64 = 1_000_000;

/// The engine's server, which two processes use.
#[derive(Debug)]
struct Server {
    records: MemoryRegister,
    now: AtomicU64,
    /// The processes' own clock, in microseconds.
    local: AtomicU64,
    /// Error of the time, in microseconds.
    error: AtomicU64,
}

impl Server {
    fn new() -> Arc<Self> {
        let (now, local) = (AtomicU64::new(1_000_000 * SECOND), AtomicU64::new(SECOND));
        Arc::new(Self {
            records: MemoryRegister::unbounded(),
            now,
            local,
            error: AtomicU64::new(1_000),
        })
    }
}

/// A process's register.
struct Handle(Arc<Server>);

impl Wrapper for Handle {
    fn inner(&self) -> &dyn Register {
        &self.0.records
    }

    fn engine(&self) -> Engine {
        let (now, error) = (
            self.0.now.load(Ordering::SeqCst),
            self.0.error.load(Ordering::SeqCst),
        );
        let at = Timestamp::from_micros;
        let time = EngineTime {
            earliest: at(now - error / 2),
            latest: at(now + error / 2),
        };
        Engine {
            time: Some(time),
            ..Engine::default()
        }
    }
}

/// Returns a process's driver. Its own clock is wrong, and stands still.
fn process(engine: &Arc<Server>, clock: u64) -> Driver {
    Driver::with_clock(
        Handle(Arc::clone(engine)),
        ManualClock::at(Timestamp::from_micros(clock)),
    )
}

fn key() -> Key {
    Key::new("k").unwrap()
}

async fn begin(process: &Driver) -> Result<Outcome, DriverError> {
    let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
    let command = Command::Begin(begin.with_authority(Authority::Register));
    Ok(process.apply(&key(), &command).await?.outcome)
}

/// The second process's own clock is an hour ahead. It must not break the permit before the engine's time has reached the
/// deadline, and must break it then.
#[tokio::test]
async fn permits_end_by_the_time_of_the_engine() {
    let engine = Server::new();
    let (first, second) = (
        process(&engine, 1_000_000 * SECOND),
        process(&engine, 1_003_600 * SECOND),
    );
    let Outcome::Granted(grant) = begin(&first).await.unwrap() else {
        panic!("there is no other writer")
    };
    assert_eq!(grant.deadline.micros(), first.now().micros() + 30 * SECOND);
    engine.now.fetch_add(29 * SECOND, Ordering::SeqCst);
    let refused = begin(&second).await.unwrap();
    assert!(
        matches!(refused, Outcome::Refused(Refusal::InFlight { .. })),
        "{refused:?}"
    );
    engine.now.fetch_add(2 * SECOND, Ordering::SeqCst);
    assert!(
        matches!(begin(&second).await.unwrap(), Outcome::Granted(_)),
        "the permit has ended"
    );
}

/// The handler of a permit ends a tenth of its duration before the permit, by the earliest possible time.
#[tokio::test]
async fn no_permit_is_granted_while_the_time_is_not_precise() {
    let engine = Server::new();
    let process = process(&engine, 0);
    engine.error.store(3 * SECOND + 2, Ordering::SeqCst);
    let Err(DriverError::Register(error)) = begin(&process).await else {
        panic!("the error exceeds a tenth")
    };
    assert_eq!(error.kind(), RegisterErrorKind::Unavailable);
    engine.error.store(3 * SECOND, Ordering::SeqCst);
    assert!(matches!(
        begin(&process).await.unwrap(),
        Outcome::Granted(_)
    ));
}

/// A process's own clock.
#[derive(Debug)]
struct Steady(tokio::time::Instant);

#[async_trait]
impl Clock for Steady {
    fn now(&self) -> Timestamp {
        Timestamp::default().saturating_add(self.0.elapsed())
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The engine's time may stand still, for example without samples.
#[tokio::test(start_paused = true)]
async fn patience_ends_by_the_processs_own_clock() {
    let engine = Server::new();
    assert!(matches!(
        begin(&process(&engine, 0)).await.unwrap(),
        Outcome::Granted(_)
    ));
    let clock = Steady(tokio::time::Instant::now());
    let second = Driver::with_clock(Handle(engine), clock).with_patience(Duration::from_secs(2));
    let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
    let command = Command::Begin(begin.with_authority(Authority::Register));
    let key = Key::new("k").unwrap();
    let waited =
        tokio::time::timeout(Duration::from_mins(1), second.apply_in_turn(&key, &command)).await;
    let outcome = waited.expect("the patience is over").unwrap().outcome;
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::InFlight { .. })),
        "{outcome:?}"
    );
}

/// A process's register, with the engine's time from samples.
struct Sampled(Arc<Server>, EngineClock);

impl Sampled {
    fn local(&self) -> Timestamp {
        Timestamp::from_micros(self.0.local.load(Ordering::SeqCst))
    }

    fn sample(&self) {
        self.1.sample(
            self.local(),
            self.local(),
            Timestamp::from_micros(self.0.now.load(Ordering::SeqCst)),
        );
    }
}

#[async_trait]
impl Wrapper for Sampled {
    fn inner(&self) -> &dyn Register {
        &self.0.records
    }

    fn engine(&self) -> Engine {
        Engine {
            time: self.1.time(self.local()),
            ..Engine::default()
        }
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
}

/// Another server has taken over, with a clock that is ten minutes behind. A process that knows the former time must not
/// break a permit of one that has started since.
#[tokio::test]
async fn a_permit_is_not_broken_early_after_the_engines_clock_was_set_back() {
    let engine = Server::new();
    let process = || {
        Driver::with_clock(
            Sampled(Arc::clone(&engine), EngineClock::default()),
            ManualClock::at(Timestamp::default()),
        )
    };
    let (before, key) = (process(), Key::new("k").unwrap());
    before.load(&key).await.unwrap();
    engine.now.fetch_sub(600 * SECOND, Ordering::SeqCst);
    let after = process();
    let begin = async |process: &Driver| {
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL);
        let command = Command::Begin(begin.with_authority(Authority::Register));
        process.apply(&key, &command).await.unwrap().outcome
    };
    let granted = begin(&after).await;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    let refused = begin(&before).await;
    assert!(
        matches!(refused, Outcome::Refused(Refusal::InFlight { .. })),
        "{refused:?}"
    );
}

/// A body arrives for longer than the last sample of the time can be trusted, and nothing else uses the register.
#[tokio::test]
async fn a_permit_is_granted_long_after_the_record_was_seen() {
    let engine = Server::new();
    let process = Driver::with_clock(
        Sampled(Arc::clone(&engine), EngineClock::default()),
        ManualClock::at(Timestamp::default()),
    );
    let seen = process.load(&key()).await.unwrap();
    for clock in [&engine.now, &engine.local] {
        clock.fetch_add(600 * SECOND, Ordering::SeqCst);
    }
    let begin = Begin::new(&Method::PUT, &Preconditions::NONE, nonce().unwrap(), TTL)
        .with_authority(Authority::Register);
    let (applied, _lock) = process
        .begin(&key(), Some(seen), begin, |_| false)
        .await
        .unwrap();
    assert!(
        matches!(applied.outcome, Outcome::Granted(_)),
        "{:?}",
        applied.outcome
    );
}

/// The handler's own clock stands still, an hour ahead.
#[tokio::test]
async fn a_handler_ends_by_the_time_of_the_engine() {
    let engine = Server::new();
    let process = process(&engine, 1_003_600 * SECOND);
    let deadline = process.now().saturating_add(TTL);
    assert!(process.until(deadline, async {}).await.is_ok());
    engine.now.fetch_add(30 * SECOND, Ordering::SeqCst);
    assert!(process.until(deadline, async {}).await.is_err());
}

/// The first process's own clock is behind the engine's, the second's is ahead.
#[tokio::test]
async fn leases_end_by_the_time_of_the_engine() {
    let engine = Server::new();
    let (behind, ahead) = (
        process(&engine, 999_970 * SECOND),
        process(&engine, 1_000_030 * SECOND),
    );
    let pass = |seconds| engine.now.fetch_add(seconds * SECOND, Ordering::SeqCst);
    let acquire = async |process: &Driver, key: &Key, holder: u8| {
        let duration = LeaseDuration::from_seconds(15).unwrap();
        let action = LeaseAction::Acquire {
            id: LeaseId::from_random([holder; 16]),
            duration,
            holder: None,
        };
        let operation = LeaseOperation::new(action, &Preconditions::NONE, nonce().unwrap());
        let command = Command::Lease(operation.with_authority(Authority::Register));
        process.apply(key, &command).await.unwrap().outcome
    };
    let key = key();
    let content = Content::Hashed {
        hash: ContentHash::of(b""),
        payload: b"payload".to_vec().into(),
    };
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        content,
        nonce().unwrap(),
    );
    let written = behind
        .apply(
            &key,
            &Command::Write(write.with_lease(LeaseUse::Read(None))),
        )
        .await
        .unwrap();
    assert!(
        matches!(written.outcome, Outcome::Written(_)),
        "{written:?}"
    );
    let leased = acquire(&behind, &key, 1).await;
    assert!(matches!(leased, Outcome::Leased(_)), "{leased:?}");
    pass(14);
    let refused = acquire(&ahead, &key, 2).await;
    assert_eq!(
        refused,
        Outcome::Refused(Refusal::LeaseConflict(LeaseConflict::AlreadyPresent))
    );
    let seen = ahead
        .load(&key)
        .await
        .unwrap()
        .seen_lease(ahead.now())
        .unwrap();
    assert_eq!(seen.lease.remaining(seen.at), Some(1), "{seen:?}");
    pass(2);
    let leased = acquire(&ahead, &key, 2).await;
    assert!(matches!(leased, Outcome::Leased(_)), "{leased:?}");
}
