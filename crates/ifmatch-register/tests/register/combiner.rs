//! The combiner on registers that conflict, fail, and return ambiguous results.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Applied, Command, Content, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, RequestId, Revision};
use ifmatch_register::{
    Change, Combiner, Driver, DriverError, Key, Register, RegisterError, RegisterErrorKind, Swap,
    Wrapper, async_trait,
};
use ifmatch_runtime::nonce;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::driver::{Fault, Faulty, create, key};

/// Appends a byte to the content.
#[derive(Clone, Debug)]
struct Append {
    byte: u8,
    preconditions: Preconditions,
    request: Option<RequestId>,
    nonce: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct TooLong;

impl Change for Append {
    type Error = TooLong;
    type Context = ();

    fn command(
        &self,
        before: &Record,
        now: Timestamp,
        (): &mut (),
    ) -> Result<Command<'_>, TooLong> {
        let version = before.state(now).version();
        let mut payload = version.map_or_else(Vec::new, |version| version.payload().to_vec());
        assert!(self.byte != b'!', "told to");
        if self.byte == b'?' {
            return Err(TooLong);
        }
        payload.push(self.byte);
        let content = Content::Hashed {
            hash: ContentHash::of(&payload),
            payload: payload.into(),
        };
        let write = Write::new(&Method::PUT, &self.preconditions, content, self.nonce);
        Ok(Command::Write(write.with_request(self.request)))
    }
}

fn append(byte: u8) -> Append {
    Append {
        byte,
        preconditions: Preconditions::NONE,
        request: None,
        nonce: nonce().unwrap(),
    }
}

type Answer = Result<Result<Applied, TooLong>, DriverError>;

/// A register whose swaps wait until they are let through.
struct Gated {
    inner: Arc<Faulty>,
    gate: Semaphore,
    /// The number of bytes stored by each swap.
    swaps: Mutex<Vec<usize>>,
}

#[async_trait]
impl Wrapper for Gated {
    fn inner(&self) -> &dyn Register {
        &*self.inner
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.gate.acquire().await.unwrap().forget();
        self.swaps.lock().unwrap().push(next.map_or(0, length));
        self.inner.compare_and_swap(key, expected, next).await
    }
}

fn bytes(record: &Record) -> Vec<u8> {
    let version = record.settled(record.revision().timestamp());
    version.map_or_else(Vec::new, |version| version.payload().to_vec())
}

fn length(record: &Record) -> usize {
    bytes(record).len()
}

struct Fixture {
    register: Arc<Gated>,
    combiner: Arc<Combiner<Append>>,
}

impl Fixture {
    /// Sends the first change, whose swap is stuck. These faults happen to the swaps from then on.
    async fn new(faults: &[Fault]) -> (Self, JoinHandle<Answer>) {
        let inner = Faulty::new(faults);
        let register = Arc::new(Gated {
            inner,
            gate: Semaphore::new(0),
            swaps: Mutex::default(),
        });
        let driver = Driver::new(Arc::clone(&register)).assume_absent();
        let fixture = Self {
            register,
            combiner: Arc::new(Combiner::new(driver)),
        };
        let first = fixture.send(append(b'0')).await;
        (fixture, first)
    }

    /// Sends a change, which waits for the swap that is under way.
    async fn send(&self, change: Append) -> JoinHandle<Answer> {
        let combiner = Arc::clone(&self.combiner);
        let sent = tokio::spawn(async move { combiner.apply(&key(), change).await });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        sent
    }

    async fn send_all(&self, changes: impl IntoIterator<Item = Append>) -> Vec<JoinHandle<Answer>> {
        let mut sent = Vec::new();
        for change in changes {
            sent.push(self.send(change).await);
        }
        sent
    }

    fn open(&self) {
        self.register.gate.add_permits(1_000);
    }

    async fn stored(&self) -> Option<Vec<u8>> {
        self.register
            .inner
            .load(&key())
            .await
            .unwrap()
            .as_ref()
            .map(bytes)
    }

    fn swaps(&self) -> Vec<usize> {
        self.register.swaps.lock().unwrap().clone()
    }
}

async fn answer(sent: JoinHandle<Answer>) -> Answer {
    tokio::time::timeout(Duration::from_secs(60), sent)
        .await
        .expect("a change is answered within a minute")
        .unwrap()
}

async fn outcome(sent: JoinHandle<Answer>) -> Outcome {
    answer(sent).await.unwrap().unwrap().outcome
}

fn kind(answer: Answer) -> RegisterErrorKind {
    match answer {
        Err(DriverError::Register(error)) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn changes_that_wait_are_stored_by_one_swap_in_order_of_arrival() {
    let (fixture, first) = Fixture::new(&[]).await;
    let sent = fixture.send_all(b"12345".map(append)).await;
    fixture.open();
    assert!(matches!(outcome(first).await, Outcome::Written(_)));
    for sent in sent {
        assert!(matches!(outcome(sent).await, Outcome::Written(_)));
    }
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"012345"[..]));
    assert_eq!(fixture.swaps(), [1, 6]);
}

/// The refusal depends on a record that isn't stored before the swap. If the swap failed, it would have been false.
#[tokio::test]
async fn no_answer_goes_out_before_the_swap_not_even_a_refusal() {
    let (fixture, first) = Fixture::new(&[]).await;
    let refused = fixture
        .send(Append {
            preconditions: create(),
            ..append(b'1')
        })
        .await;
    fixture.register.gate.add_permits(1);
    assert!(matches!(outcome(first).await, Outcome::Written(_)));
    let written = fixture.send(append(b'2')).await;
    let late = fixture
        .send(Append {
            preconditions: create(),
            ..append(b'3')
        })
        .await;
    // The first group after the stuck swap has only the refusal, which needs no swap.
    assert!(matches!(
        outcome(refused).await,
        Outcome::Refused(Refusal::PreconditionFailed { .. })
    ));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        !written.is_finished() && !late.is_finished(),
        "answered before the swap"
    );
    fixture.open();
    assert!(matches!(outcome(written).await, Outcome::Written(_)));
    assert!(matches!(
        outcome(late).await,
        Outcome::Refused(Refusal::PreconditionFailed { .. })
    ));
}

/// Another process was faster. Each change, also one that was refused, is applied to the record of that process.
#[tokio::test]
async fn after_a_conflict_the_whole_group_is_applied_again() {
    let (fixture, first) = Fixture::new(&[Fault::Overtaken]).await;
    fixture.open();
    outcome(first).await;
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"faster0"[..]));
    let (fixture, first) = Fixture::new(&[]).await;
    let sent = fixture.send_all(b"12".map(append)).await;
    fixture.register.inner.then(&[Fault::Overtaken], 1);
    fixture.open();
    outcome(first).await;
    for sent in sent {
        assert!(matches!(outcome(sent).await, Outcome::Written(_)));
    }
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"faster12"[..]));
}

#[tokio::test]
async fn a_group_whose_swap_lost_its_answer_is_recognised_by_its_last_record() {
    for (fault, swaps) in [
        (Fault::DoneWithoutAnswer, &[1, 4][..]),
        (Fault::LostWithoutAnswer, &[1, 4, 4]),
    ] {
        let (fixture, first) = Fixture::new(&[]).await;
        let sent = fixture.send_all(b"123".map(append)).await;
        let refused = fixture
            .send(Append {
                preconditions: create(),
                ..append(b'4')
            })
            .await;
        fixture.register.inner.then(&[fault], 1);
        fixture.open();
        outcome(first).await;
        for sent in sent {
            assert!(
                matches!(outcome(sent).await, Outcome::Written(_)),
                "{fault:?}"
            );
        }
        assert!(
            matches!(outcome(refused).await, Outcome::Refused(_)),
            "{fault:?}"
        );
        assert_eq!(
            fixture.stored().await.as_deref(),
            Some(&b"0123"[..]),
            "{fault:?}"
        );
        assert_eq!(fixture.swaps(), swaps, "{fault:?}");
    }
}

/// The swap may have preceded the other process's. A refusal may have been computed on a record that was never there.
#[tokio::test]
async fn the_changes_of_a_group_share_its_fate() {
    for (fault, expected) in [
        (
            Fault::DoneWithoutAnswerThenOvertaken,
            RegisterErrorKind::Ambiguous,
        ),
        (Fault::Unavailable, RegisterErrorKind::Unavailable),
    ] {
        let (fixture, first) = Fixture::new(&[]).await;
        let mut sent = fixture.send_all(b"12".map(append)).await;
        sent.push(
            fixture
                .send(Append {
                    preconditions: create(),
                    ..append(b'3')
                })
                .await,
        );
        fixture.register.inner.then(&[fault], 1);
        fixture.open();
        outcome(first).await;
        for sent in sent {
            assert_eq!(kind(answer(sent).await), expected);
        }
        let after = fixture.send(append(b'4')).await;
        assert!(
            matches!(outcome(after).await, Outcome::Written(_)),
            "the next group is not affected"
        );
    }
}

/// All clients of a group whose answers were lost send their requests again.
#[tokio::test]
async fn retries_of_a_whole_group_change_nothing() {
    let (fixture, first) = Fixture::new(&[]).await;
    let keyed = |byte| Append {
        request: Some(RequestId::of(&[&[byte]])),
        ..append(byte)
    };
    let group: Vec<Append> = (b'a'..=b'z').map(keyed).collect();
    let sent = fixture.send_all(group.clone()).await;
    fixture.open();
    outcome(first).await;
    let mut receipts = Vec::new();
    for sent in sent {
        let Outcome::Written(receipt) = outcome(sent).await else {
            panic!()
        };
        receipts.push(receipt);
    }
    for (change, receipt) in group.into_iter().zip(receipts) {
        assert_eq!(
            outcome(fixture.send(change).await).await,
            Outcome::Replayed(receipt)
        );
    }
    assert_eq!(
        fixture.stored().await.unwrap(),
        b"0abcdefghijklmnopqrstuvwxyz"
    );
}

#[tokio::test]
async fn a_change_whose_caller_is_gone_stays_in_its_group() {
    let (fixture, first) = Fixture::new(&[]).await;
    let gone = fixture.send(append(b'1')).await;
    let second = fixture.send(append(b'2')).await;
    gone.abort();
    first.abort();
    fixture.open();
    outcome(second).await;
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"012"[..]));
}

#[tokio::test]
async fn a_change_that_does_not_fit_fails_alone() {
    let (fixture, first) = Fixture::new(&[]).await;
    let sent = fixture.send_all(b"1?2".map(append)).await;
    fixture.open();
    outcome(first).await;
    let answers = futures_util::future::join_all(sent).await;
    let fits: Vec<bool> = answers
        .into_iter()
        .map(|answer| answer.unwrap().unwrap().is_ok())
        .collect();
    assert_eq!(fits, [true, false, true]);
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"012"[..]));
}

/// A panic takes its group along, but not the key.
#[tokio::test]
async fn a_panic_in_a_change_blocks_no_later_change() {
    let (fixture, first) = Fixture::new(&[]).await;
    let sent = fixture.send_all(b"1!2".map(append)).await;
    fixture.open();
    outcome(first).await;
    for sent in sent {
        assert_eq!(kind(answer(sent).await), RegisterErrorKind::Ambiguous);
    }
    outcome(fixture.send(append(b'3')).await).await;
    assert_eq!(fixture.stored().await.as_deref(), Some(&b"03"[..]));
}

/// More changes than a group takes, and none waits for more than its turn.
#[tokio::test]
async fn a_group_is_bounded_and_the_rest_follows_in_order() {
    let (fixture, first) = Fixture::new(&[]).await;
    let many = || (0..=255).filter(|byte| !b"!?".contains(byte));
    let sent = fixture.send_all(many().map(append)).await;
    fixture.open();
    outcome(first).await;
    for sent in sent {
        assert!(matches!(outcome(sent).await, Outcome::Written(_)));
    }
    let all: Vec<u8> = [b'0'].into_iter().chain(many()).collect();
    assert_eq!(fixture.stored().await, Some(all));
    assert_eq!(fixture.swaps(), [1, 129, 255]);
}

/// Two processes with a combiner each write one key of one register.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_lose_no_change() {
    let register = Faulty::new(&[]);
    let processes: Vec<_> = (0..2)
        .map(|_| {
            Arc::new(Combiner::new(
                Driver::new(Arc::clone(&register)).assume_absent(),
            ))
        })
        .collect();
    let writers = (0..64_usize).map(|number| {
        let combiner = Arc::clone(&processes[number % 2]);
        tokio::spawn(async move {
            for _ in 0..10 {
                let byte = u8::try_from(number).unwrap();
                let applied = combiner
                    .apply(&key(), append(b'A' + byte))
                    .await
                    .unwrap()
                    .unwrap();
                assert!(
                    matches!(applied.outcome, Outcome::Written(_)),
                    "{applied:?}"
                );
            }
        })
    });
    for ended in futures_util::future::join_all(writers).await {
        ended.unwrap();
    }
    let record = register.load(&key()).await.unwrap().unwrap();
    let mut counts = [0; 64];
    for byte in bytes(&record) {
        counts[usize::from(byte - b'A')] += 1;
    }
    assert_eq!(counts, [10; 64]);
}
