//! The driver on registers that conflict, fail, and return ambiguous results.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use http::header::{HeaderMap, HeaderValue, IF_NONE_MATCH};
use ifmatch_core::command::{
    Authority, Begin, Command, Commit, Content, Grant, LeaseOperation, Outcome, Refusal, Write,
};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{
    Lease, LeaseAction, LeaseConflict, LeaseDuration, LeaseId, LeaseState, LeaseUse,
};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Driver, DriverError, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Swap,
    Wrapper, async_trait,
};
use ifmatch_runtime::{Clock, ManualClock, SystemClock, nonce};

/// What happens to one swap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// None.
    Nothing,
    /// Another writer was faster.
    Overtaken,
    /// The holder releases its lease, and another client acquires it.
    LeasedAnew,
    /// The swap takes place, and the response is lost.
    DoneWithoutAnswer,
    /// The swap takes place, the response is lost, and another writer follows.
    DoneWithoutAnswerThenOvertaken,
    /// The swap takes place, its response is lost, and the next load fails.
    DoneWithoutAnswerThenUnreadable,
    /// The swap takes place, its response is lost, and the client library sends it again: it conflicts with itself.
    DoneTwice,
    /// The swap doesn't take place, and the response is lost.
    LostWithoutAnswer,
    /// The swap fails and reports the failure.
    Unavailable,
}

/// A register with faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: MemoryRegister,
    /// The faults of the next swaps, the last one first. Later swaps succeed.
    faults: Mutex<Vec<Fault>>,
    is_unreadable: AtomicBool,
    loads: AtomicUsize,
    swaps: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(faults: &[Fault]) -> Arc<Self> {
        let faults = Mutex::new(faults.iter().rev().copied().collect());
        let (is_unreadable, loads, swaps) = Default::default();
        Arc::new(Self {
            inner: MemoryRegister::unbounded(),
            faults,
            is_unreadable,
            loads,
            swaps,
        })
    }

    /// Adds faults after this many swaps.
    pub(crate) fn then(&self, faults: &[Fault], after: usize) {
        let mut next = self.faults.lock().unwrap();
        next.extend(faults.iter().rev());
        next.extend(vec![Fault::Nothing; after]);
    }

    /// Another writer writes.
    async fn overtake(&self, key: &Key) -> Result<Swap, RegisterError> {
        let before = self.inner.load(key).await?.unwrap_or_else(Record::absent);
        let none = Preconditions::default();
        let faster = before.apply(
            &Command::Write(put(&none, b"faster")),
            before.revision().timestamp(),
        );
        self.inner
            .compare_and_swap(key, before.revision(), faster.next.as_ref())
            .await
    }
}

#[async_trait]
impl Wrapper for Faulty {
    fn inner(&self) -> &dyn Register {
        &self.inner
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if self.is_unreadable.swap(false, Ordering::Relaxed) {
            return Err(RegisterErrorKind::Unavailable.into());
        }
        self.inner.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swaps.fetch_add(1, Ordering::Relaxed);
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            None | Some(Fault::Nothing) => self.inner.compare_and_swap(key, expected, next).await,
            Some(Fault::Overtaken) => {
                self.overtake(key).await?;
                self.inner.compare_and_swap(key, expected, next).await
            }
            Some(Fault::LeasedAnew) => {
                for action in [LeaseAction::Release(id(1)), acquire(2)] {
                    let before = self.inner.load(key).await?.unwrap();
                    let after = before.apply(&lease(action), before.revision().timestamp());
                    self.inner
                        .compare_and_swap(key, before.revision(), after.next.as_ref())
                        .await?;
                }
                self.inner.compare_and_swap(key, expected, next).await
            }
            Some(Fault::DoneWithoutAnswerThenOvertaken) => {
                self.inner.compare_and_swap(key, expected, next).await?;
                self.overtake(key).await?;
                Err(RegisterErrorKind::Ambiguous.into())
            }
            Some(Fault::DoneWithoutAnswerThenUnreadable) => {
                self.inner.compare_and_swap(key, expected, next).await?;
                self.is_unreadable.store(true, Ordering::Relaxed);
                Err(RegisterErrorKind::Ambiguous.into())
            }
            Some(Fault::DoneWithoutAnswer) => {
                self.inner.compare_and_swap(key, expected, next).await?;
                Err(RegisterErrorKind::Ambiguous.into())
            }
            Some(Fault::DoneTwice) => {
                self.inner.compare_and_swap(key, expected, next).await?;
                self.inner.compare_and_swap(key, expected, next).await
            }
            Some(Fault::LostWithoutAnswer) => Err(RegisterErrorKind::Ambiguous.into()),
            Some(Fault::Unavailable) => Err(RegisterErrorKind::Unavailable.into()),
        }
    }
}

pub(crate) fn key() -> Key {
    Key::new("resource").unwrap()
}

fn put<'a>(preconditions: &'a Preconditions, body: &[u8]) -> Write<'a> {
    let content = Content::Hashed {
        hash: ContentHash::of(body),
        payload: body.to_vec().into(),
    };
    let nonce = nonce().unwrap();
    Write::new(&Method::PUT, preconditions, content, nonce)
}

fn id(number: u8) -> LeaseId {
    LeaseId::from_random([number; 16])
}

fn acquire(number: u8) -> LeaseAction {
    LeaseAction::Acquire {
        id: id(number),
        duration: LeaseDuration::Infinite,
        holder: None,
    }
}

fn lease(action: LeaseAction) -> Command<'static> {
    let operation = LeaseOperation::new(action, &Preconditions::NONE, nonce().unwrap());
    Command::Lease(operation.with_authority(Authority::Register))
}

pub(crate) fn create() -> Preconditions {
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    Preconditions::from_headers(&headers)
}

fn begin(preconditions: &Preconditions, ttl: Duration) -> Command<'_> {
    let (authority, nonce) = (Authority::Register, nonce().unwrap());
    Command::Begin(Begin::new(&Method::PUT, preconditions, nonce, ttl).with_authority(authority))
}

async fn granted(driver: &Driver, ttl: Duration) -> Grant {
    let none = Preconditions::default();
    let outcome = driver
        .apply(&key(), &begin(&none, ttl))
        .await
        .unwrap()
        .outcome;
    let Outcome::Granted(grant) = outcome else {
        panic!("{outcome:?}")
    };
    grant
}

async fn write_with(faults: &[Fault]) -> (Result<Outcome, DriverError>, Arc<Faulty>) {
    let register = Faulty::new(faults);
    let driver = Driver::new(Arc::clone(&register)).assume_absent();
    let create = create();
    let applied = driver
        .apply(&key(), &Command::Write(put(&create, b"mine")))
        .await;
    (applied.map(|applied| applied.outcome), register)
}

async fn body(register: &Arc<Faulty>) -> Option<Vec<u8>> {
    let record = register.load(&key()).await.unwrap()?;
    let version = record.settled(record.revision().timestamp())?;
    Some(version.payload().to_vec())
}

#[tokio::test]
async fn after_a_conflict_the_command_is_applied_to_the_new_record() {
    let (outcome, register) = write_with(&[Fault::Overtaken]).await;
    let refused = outcome.unwrap();
    assert!(
        matches!(
            refused,
            Outcome::Refused(Refusal::PreconditionFailed { .. })
        ),
        "{refused:?}"
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"faster"[..]));
}

/// An operator sees a lease and breaks it. Between the load and the swap of the break, the lease becomes another client's.
#[tokio::test]
async fn a_break_by_token_does_not_break_the_next_lease() {
    let (_, register) = write_with(&[]).await;
    let driver = Driver::new(Arc::clone(&register)).assume_absent();
    let Outcome::Leased(seen) = driver
        .apply(&key(), &lease(acquire(1)))
        .await
        .unwrap()
        .outcome
    else {
        panic!()
    };
    register.faults.lock().unwrap().push(Fault::LeasedAnew);
    let by_token = LeaseAction::Break {
        period: None,
        token: seen.lease.map(|lease| lease.token()),
    };
    let outcome = driver
        .apply(&key(), &lease(by_token))
        .await
        .unwrap()
        .outcome;
    assert_eq!(
        outcome,
        Outcome::Refused(Refusal::LeaseConflict(LeaseConflict::TokenMismatch))
    );
    let record = register.load(&key()).await.unwrap().unwrap();
    let now = record.revision().timestamp();
    assert_eq!(
        (record.lease().map(Lease::id), record.lease_state(now)),
        (Some(id(2)), LeaseState::Leased)
    );
}

#[tokio::test]
async fn a_swap_with_a_lost_answer_is_recognised() {
    let (outcome, register) = write_with(&[Fault::DoneWithoutAnswer]).await;
    assert!(
        matches!(outcome.unwrap(), Outcome::Written(_)),
        "not a false 412 for its own creation"
    );
    assert_eq!(register.swaps.load(Ordering::Relaxed), 1);
    let (outcome, register) = write_with(&[Fault::LostWithoutAnswer]).await;
    assert!(
        matches!(outcome.unwrap(), Outcome::Written(_)),
        "tried again"
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"mine"[..]));
}

/// The client library of an engine sends the swap, loses the response and sends the swap again.
#[tokio::test]
async fn a_conflict_with_the_swap_itself_is_a_success() {
    let (outcome, register) = write_with(&[Fault::DoneTwice]).await;
    assert!(
        matches!(outcome.unwrap(), Outcome::Written(_)),
        "not a false 412 for its own creation"
    );
    assert_eq!(
        register.swaps.load(Ordering::Relaxed),
        1,
        "the write is not repeated"
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"mine"[..]));
}

#[tokio::test]
async fn an_unavailable_register_is_an_error_and_changes_nothing() {
    let (outcome, register) = write_with(&[Fault::Unavailable]).await;
    let DriverError::Register(error) = outcome.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), RegisterErrorKind::Unavailable);
    assert_eq!(body(&register).await, None);
}

#[tokio::test]
async fn after_a_lost_answer_no_error_claims_that_nothing_was_changed() {
    let faults = [Fault::LostWithoutAnswer, Fault::Unavailable];
    let DriverError::Register(error) = write_with(&faults).await.0.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
}

#[tokio::test]
async fn a_register_that_never_answers_is_retried_a_few_times() {
    let (outcome, register) = write_with(&[Fault::LostWithoutAnswer; 100]).await;
    let DriverError::Register(error) = outcome.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
    assert!(register.swaps.load(Ordering::Relaxed) <= 3);
}

/// The write took place, so a refusal would be false, and a repetition would repeat its effect.
#[tokio::test]
async fn an_ambiguous_swap_followed_by_other_writers_is_neither_repeated_nor_denied() {
    let (outcome, register) = write_with(&[Fault::DoneWithoutAnswerThenOvertaken]).await;
    let DriverError::Register(error) = outcome.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
    assert_eq!(register.swaps.load(Ordering::Relaxed), 1);
    assert_eq!(body(&register).await.as_deref(), Some(&b"faster"[..]));
}

/// Waits until the register holds no permit, in virtual time.
async fn freed(register: &Faulty, within: Duration) {
    let is_free = async {
        let is_held = |record: Record| record.permit(SystemClock.now()).is_some();
        while register
            .inner
            .load(&key())
            .await
            .unwrap()
            .is_some_and(is_held)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(within, is_free)
        .await
        .expect("the permit is given back long before it ends");
}

/// The writer got an error and knows of no permit, so only its driver can end it before its deadline.
#[tokio::test(start_paused = true)]
async fn a_permit_granted_without_an_answer_is_aborted() {
    let register = Faulty::new(&[
        Fault::DoneWithoutAnswerThenUnreadable,
        Fault::Unavailable,
        Fault::Unavailable,
    ]);
    let driver = Driver::new(Arc::clone(&register));
    let none = Preconditions::default();
    let error = driver
        .apply(&key(), &begin(&none, Duration::from_mins(1)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, DriverError::Register(error) if error.kind() == RegisterErrorKind::Ambiguous)
    );
    freed(&register, Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_given_back_after_an_outage() {
    let register = Faulty::new(&[]);
    let driver = Driver::new(Arc::clone(&register));
    let grant = granted(&driver, Duration::from_mins(1)).await;
    register
        .faults
        .lock()
        .unwrap()
        .extend([Fault::Unavailable; 5]);
    let abort = Command::Abort(grant.token);
    driver
        .give_back(&key(), None, abort, grant.deadline)
        .await
        .unwrap_err();
    freed(&register, Duration::from_secs(10)).await;
}

/// A clock that advances by 20 seconds with every wait.
#[derive(Debug, Default)]
struct Leaping(AtomicU64);

#[async_trait]
impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, _: Duration) {
        self.0.fetch_add(20_000_000, Ordering::Relaxed);
    }
}

/// A clock that stands still, and notes the waits.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<Duration>>);

#[async_trait]
impl Clock for Noting {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    async fn sleep(&self, duration: Duration) {
        self.0.lock().unwrap().push(duration);
    }
}

/// Writers that pause for the same times keep meeting each other.
#[tokio::test]
async fn writers_that_met_pause_for_different_times() {
    let mut waits = Vec::new();
    for _ in 0..2 {
        let clock = Arc::new(Noting::default());
        let driver = Driver::with_clock(Faulty::new(&[Fault::Overtaken; 20]), Arc::clone(&clock))
            .assume_absent();
        let none = Preconditions::default();
        driver
            .apply(&key(), &Command::Write(put(&none, b"mine")))
            .await
            .unwrap();
        waits.push(clock.0.lock().unwrap().clone());
    }
    // There is no pause after the first conflict.
    assert_eq!(waits.iter().map(Vec::len).collect::<Vec<_>>(), [19, 19]);
    assert_ne!(waits[0], waits[1]);
}

/// A clock of steps of 200 microseconds, in which the tasks of one thread take turns.
#[derive(Clone, Debug, Default)]
struct Steps(Arc<AtomicU64>);

impl Steps {
    async fn step(&self) {
        self.0.fetch_add(200, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

#[async_trait]
impl Clock for Steps {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, duration: Duration) {
        for _ in 0..duration.as_micros().div_ceil(200) {
            self.step().await;
        }
    }
}

/// A register whose calls take a step.
#[derive(Debug)]
struct Stepping(MemoryRegister, Steps);

#[async_trait]
impl Wrapper for Stepping {
    fn inner(&self) -> &dyn Register {
        &self.0
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.1.step().await;
        self.0.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.1.step().await;
        self.0.compare_and_swap(key, expected, next).await
    }
}

/// Whoever has just won has no pause. What a conflict has shown is outdated after one.
#[tokio::test]
async fn two_busy_processes_do_not_starve_each_other() {
    let clock = Steps::default();
    let register = Arc::new(Stepping(MemoryRegister::unbounded(), clock.clone()));
    let writers = [(); 2].map(|()| {
        let driver = Driver::with_clock(Arc::clone(&register), clock.clone()).assume_absent();
        tokio::spawn(async move {
            for _ in 0..60_000 {
                let none = Preconditions::default();
                driver
                    .apply(&key(), &Command::Write(put(&none, b"mine")))
                    .await
                    .expect("a turn within ten seconds");
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
}

/// The number of attempts doesn't matter, only the time for which clients wait.
#[tokio::test]
async fn contention_ends_by_time_alone() {
    let register = Faulty::new(&[Fault::Overtaken; 10]);
    let driver = Driver::with_clock(Arc::clone(&register), Leaping::default()).assume_absent();
    let none = Preconditions::default();
    let error = driver
        .apply(&key(), &Command::Write(put(&none, b"mine")))
        .await
        .unwrap_err();
    assert!(matches!(error, DriverError::Contention), "{error}");
    assert_eq!(
        register.faults.lock().unwrap().len(),
        7,
        "swaps after 20 seconds"
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"faster"[..]));
    let register = Faulty::new(&[Fault::Overtaken; 1_000]);
    let driver = Driver::with_clock(Arc::clone(&register), Noting::default()).assume_absent();
    let applied = driver
        .apply(&key(), &Command::Write(put(&none, b"mine")))
        .await
        .unwrap();
    assert!(matches!(applied.outcome, Outcome::Written(_)));
}

/// The swap may still take place. The end of the lease before the next attempt doesn't decide the first one.
#[tokio::test]
async fn an_ambiguous_swap_is_not_denied_because_time_has_passed() {
    let register = Faulty::new(&[]);
    let driver = Driver::with_clock(Arc::clone(&register), Leaping::default()).assume_absent();
    let none = Preconditions::default();
    driver
        .apply(&key(), &Command::Write(put(&none, b"before")))
        .await
        .unwrap();
    let id: LeaseId = "936da01f-9abd-4d9d-80c7-02af85c822a8".parse().unwrap();
    let acquire = Command::Lease(
        LeaseOperation::new(
            LeaseAction::Acquire {
                id,
                duration: LeaseDuration::from_seconds(15).unwrap(),
                holder: None,
            },
            &none,
            nonce().unwrap(),
        )
        .with_authority(Authority::Register),
    );
    let leased = driver.apply(&key(), &acquire).await.unwrap().outcome;
    assert!(matches!(leased, Outcome::Leased(_)), "{leased:?}");
    register
        .faults
        .lock()
        .unwrap()
        .push(Fault::LostWithoutAnswer);
    let write = put(&none, b"mine").with_lease(LeaseUse::Write(Some(id)));
    let DriverError::Register(error) = driver
        .apply(&key(), &Command::Write(write))
        .await
        .unwrap_err()
    else {
        panic!()
    };
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous);
}

#[tokio::test]
async fn an_earlier_record_saves_loads_but_not_conflicts() {
    for (faults, loads) in [
        (&[][..], 0),
        (&[Fault::Overtaken], 0),
        (&[Fault::DoneWithoutAnswer], 1),
    ] {
        let register = Faulty::new(faults);
        let driver = Driver::new(Arc::clone(&register)).assume_absent();
        let none = Preconditions::default();
        let write = Command::Write(put(&none, b"mine"));
        let applied = driver
            .apply_to(&key(), Some(Record::absent()), &write)
            .await
            .unwrap();
        assert!(matches!(applied.outcome, Outcome::Written(_)), "{faults:?}");
        assert_eq!(register.loads.load(Ordering::Relaxed), loads, "{faults:?}");
        assert_eq!(
            register.inner.load(&key()).await.unwrap(),
            Some(applied.after),
            "{faults:?}"
        );
    }
}

#[tokio::test]
async fn an_outdated_record_neither_grants_nor_refuses() {
    let register = Faulty::new(&[]);
    let driver = Driver::new(Arc::clone(&register)).assume_absent();
    let (none, create) = (Preconditions::default(), create());
    let before = driver.load(&key()).await.unwrap();
    let first = driver
        .apply(&key(), &Command::Write(put(&none, b"first")))
        .await
        .unwrap();
    // In the outdated record, the resource doesn't exist yet.
    let refused = driver
        .apply_to(
            &key(),
            Some(before),
            &Command::Write(put(&create, b"second")),
        )
        .await
        .unwrap();
    assert!(
        matches!(
            refused.outcome,
            Outcome::Refused(Refusal::PreconditionFailed { .. })
        ),
        "{:?}",
        refused.outcome
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"first"[..]));
    // In the outdated record, the resource still exists.
    register
        .inner
        .compare_and_swap(&key(), first.after.revision(), None)
        .await
        .unwrap();
    let write = Command::Write(put(&create, b"third"));
    let written = driver
        .apply_to(&key(), Some(first.after), &write)
        .await
        .unwrap();
    assert!(
        matches!(written.outcome, Outcome::Written(_)),
        "{:?}",
        written.outcome
    );
    assert_eq!(body(&register).await.as_deref(), Some(&b"third"[..]));
}

#[tokio::test]
async fn a_writer_waits_for_the_end_of_the_write_in_flight() {
    let driver = Arc::new(Driver::new(Faulty::new(&[])));
    let first = granted(&driver, Duration::from_mins(10)).await;
    let waiting = tokio::spawn({
        let driver = Arc::clone(&driver);
        async move {
            let none = Preconditions::default();
            driver
                .apply_in_turn(&key(), &begin(&none, Duration::from_mins(10)))
                .await
                .unwrap()
                .outcome
        }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished(), "the first write is still in flight");
    driver
        .apply(&key(), &Command::Abort(first.token))
        .await
        .unwrap();
    assert!(matches!(waiting.await.unwrap(), Outcome::Granted(_)));
}

#[tokio::test]
async fn patience_ends_with_the_refusal() {
    let driver = Driver::new(Faulty::new(&[])).with_patience(Duration::from_millis(20));
    granted(&driver, Duration::from_mins(10)).await;
    let none = Preconditions::default();
    let command = begin(&none, Duration::from_mins(10));
    let outcome = driver
        .apply_in_turn(&key(), &command)
        .await
        .unwrap()
        .outcome;
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::InFlight { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_writer_does_not_wait_beyond_the_deadline_of_a_crashed_writer() {
    let driver = Driver::new(Faulty::new(&[]));
    granted(&driver, Duration::from_millis(50)).await;
    let none = Preconditions::default();
    let command = begin(&none, Duration::from_mins(10));
    let outcome = driver
        .apply_in_turn(&key(), &command)
        .await
        .unwrap()
        .outcome;
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
}

/// A waiter that gives up or is refused must wake the next one. The timers of this clock never fire: tasks continue only when woken.
#[tokio::test]
async fn a_waiter_that_leaves_does_not_strand_the_next() {
    let driver = Arc::new(
        Driver::with_clock(Faulty::new(&[]), ManualClock::at(SystemClock.now())).assume_absent(),
    );
    let first = granted(&driver, Duration::from_mins(10)).await;
    let waiter = |create: bool| {
        let driver = Arc::clone(&driver);
        tokio::spawn(async move {
            let conditions = if create {
                self::create()
            } else {
                Preconditions::default()
            };
            let command = begin(&conditions, Duration::from_mins(10));
            driver
                .apply_in_turn(&key(), &command)
                .await
                .unwrap()
                .outcome
        })
    };
    let waiters: Vec<_> = (0..20).map(|at| waiter(at != 19)).collect();
    waiters[0].abort();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let none = Preconditions::default();
    let content = put(&none, b"done").content;
    let commit = Commit::new(first.token, content);
    driver
        .apply(&key(), &Command::Commit(commit))
        .await
        .unwrap();
    let mut outcomes = Vec::new();
    for waiter in waiters {
        let ended = tokio::time::timeout(Duration::from_secs(30), waiter).await;
        outcomes.extend(ended.expect("every waiter is called").ok());
    }
    let refused = |outcome: &&Outcome| {
        matches!(
            outcome,
            Outcome::Refused(Refusal::PreconditionFailed { .. })
        )
    };
    assert_eq!(outcomes.iter().filter(refused).count(), 18);
    assert!(matches!(outcomes.last(), Some(Outcome::Granted(_))));
}
