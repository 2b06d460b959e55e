//! Lanes: batches, conflicts within the queue, cancellation and time limits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::lanes::{BATCH, Batches, Lanes, QueuedSwap};
use ifmatch_register::{
    Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait,
};
use ifmatch_runtime::nonce;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// An engine that carries out a batch when the test allows it.
#[derive(Debug)]
struct Engine {
    records: MemoryRegister,
    batches: Mutex<Vec<Vec<Key>>>,
    allowed: Semaphore,
    /// `true` if the next batch takes place without a response.
    mute: Mutex<bool>,
}

#[derive(Clone)]
struct Connection(Arc<Engine>);

impl Engine {
    fn new(allowed: usize) -> Arc<Self> {
        let (batches, mute) = Default::default();
        Arc::new(Self {
            records: MemoryRegister::unbounded(),
            batches,
            allowed: Semaphore::new(allowed),
            mute,
        })
    }

    fn batches(&self) -> Vec<Vec<Key>> {
        self.batches.lock().unwrap().clone()
    }

    async fn begin(&self, keys: Vec<Key>) {
        assert!(keys.len() <= BATCH);
        self.batches.lock().unwrap().push(keys);
        self.allowed.acquire().await.unwrap().forget();
    }
}

impl Batches for Connection {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        let keys: Vec<Key> = batch.iter().map(|swap| swap.key.clone()).collect();
        assert_eq!(
            keys.iter().collect::<HashSet<_>>().len(),
            keys.len(),
            "each key occurs once in a batch"
        );
        self.0.begin(keys).await;
        let mut results = Vec::new();
        for QueuedSwap {
            key,
            expected,
            next,
        } in batch
        {
            results.push(
                self.0
                    .records
                    .compare_and_swap(key, *expected, next.as_ref())
                    .await,
            );
        }
        if std::mem::take(&mut *self.0.mute.lock().unwrap()) {
            results.clear();
        }
        results
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        self.0.begin(keys.to_vec()).await;
        let mut records = Vec::new();
        for key in keys {
            records.push(self.0.records.load(key).await?);
        }
        Ok(records)
    }
}

/// A register on lanes.
struct Gathered(Lanes, Arc<Engine>);

#[async_trait]
impl Register for Gathered {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.0.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.0.swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.1.records.scan(scan).await
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn after(before: &Record) -> Record {
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        Content::Unknown,
        nonce().unwrap(),
    );
    before
        .apply(&Command::Write(write), before.revision().timestamp())
        .next
        .unwrap()
}

fn lanes(engine: &Arc<Engine>, limit: Duration) -> Arc<Lanes> {
    let connections = || [Connection(Arc::clone(engine))];
    Arc::new(Lanes::start(connections(), connections(), limit))
}

type Called = JoinHandle<Result<Swap, RegisterError>>;

/// Calls a swap, and returns once the lane has it.
async fn call(lanes: &Arc<Lanes>, name: &str, expected: Revision, next: &Record) -> Called {
    let (lanes, key, next) = (Arc::clone(lanes), key(name), next.clone());
    let called = tokio::spawn(async move { lanes.swap(&key, expected, Some(&next)).await });
    settle().await;
    called
}

/// Lets all other tasks run until they wait. The runtime has one thread.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_conform() {
    let engine = Engine::new(Semaphore::MAX_PERMITS);
    let connections = || [(); 2].map(|()| Connection(Arc::clone(&engine)));
    let register = Gathered(
        Lanes::start(connections(), connections(), LONG),
        Arc::clone(&engine),
    );
    conformance::run(register, RaceSize::default()).await;
    assert!(
        engine.batches().iter().any(|batch| batch.len() > 1),
        "no two calls were gathered"
    );
}

#[tokio::test]
async fn calls_gather_while_a_batch_is_under_way() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let first = call(&lanes, "first", Revision::NONE, &after(&Record::absent())).await;
    let mut others = Vec::new();
    for number in 0..2 * BATCH {
        others.push(
            call(
                &lanes,
                &number.to_string(),
                Revision::NONE,
                &after(&Record::absent()),
            )
            .await,
        );
    }
    engine.allowed.add_permits(100);
    for called in std::iter::once(first).chain(others) {
        assert_eq!(called.await.unwrap().unwrap(), Swap::Done);
    }
    let sizes: Vec<usize> = engine.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, BATCH, BATCH]);
}

/// Two swaps of one key wait behind another batch. The first replaces the record that the second expects as well.
#[tokio::test]
async fn a_swap_behind_another_of_its_key_conflicts_with_what_that_one_left() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let (mine, theirs) = (after(&Record::absent()), after(&Record::absent()));
    let other = call(&lanes, "other", Revision::NONE, &after(&Record::absent())).await;
    let first = call(&lanes, "k", Revision::NONE, &theirs).await;
    let second = call(&lanes, "k", Revision::NONE, &mine).await;
    engine.allowed.add_permits(2);
    assert_eq!(other.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(first.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(second.await.unwrap().unwrap(), Swap::Conflict(Some(theirs)));
    assert_eq!(
        engine.batches(),
        [[key("other")], [key("k")]],
        "a conflict that is known needs no batch"
    );
}

#[tokio::test]
async fn a_swap_behind_another_of_its_key_follows_it_if_it_expects_its_record() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let first_record = after(&Record::absent());
    let other = call(&lanes, "other", Revision::NONE, &after(&Record::absent())).await;
    let first = call(&lanes, "k", Revision::NONE, &first_record).await;
    let second = call(&lanes, "k", first_record.revision(), &after(&first_record)).await;
    engine.allowed.add_permits(3);
    assert_eq!(other.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(first.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(second.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(engine.batches(), [[key("other")], [key("k")], [key("k")]]);
}

/// Nothing is known about the record after an unacknowledged swap, so the next swap must be sent.
#[tokio::test]
async fn a_swap_behind_an_ambiguous_one_of_its_key_is_sent() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let theirs = after(&Record::absent());
    let other = call(&lanes, "other", Revision::NONE, &after(&Record::absent())).await;
    let first = call(&lanes, "k", Revision::NONE, &theirs).await;
    let second = call(&lanes, "k", Revision::NONE, &after(&Record::absent())).await;
    engine.allowed.add_permits(1);
    assert_eq!(other.await.unwrap().unwrap(), Swap::Done);
    *engine.mute.lock().unwrap() = true;
    engine.allowed.add_permits(2);
    assert_eq!(
        first.await.unwrap().unwrap_err().kind(),
        RegisterErrorKind::Ambiguous
    );
    assert_eq!(second.await.unwrap().unwrap(), Swap::Conflict(Some(theirs)));
    assert_eq!(engine.batches(), [[key("other")], [key("k")], [key("k")]]);
}

/// Another process may have replaced the record since, and this caller may know.
#[tokio::test]
async fn a_swap_called_during_a_batch_is_sent() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let theirs = after(&Record::absent());
    let first = call(&lanes, "k", Revision::NONE, &theirs).await;
    let second = call(&lanes, "k", Revision::NONE, &after(&Record::absent())).await;
    engine.allowed.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap(), Swap::Done);
    assert_eq!(second.await.unwrap().unwrap(), Swap::Conflict(Some(theirs)));
    assert_eq!(engine.batches(), [[key("k")], [key("k")]]);
}

#[tokio::test]
async fn a_cancelled_swap_is_not_sent_if_it_is_in_no_batch() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, LONG);
    let first = call(&lanes, "first", Revision::NONE, &after(&Record::absent())).await;
    call(
        &lanes,
        "cancelled",
        Revision::NONE,
        &after(&Record::absent()),
    )
    .await
    .abort();
    let third = call(&lanes, "third", Revision::NONE, &after(&Record::absent())).await;
    engine.allowed.add_permits(2);
    assert_eq!(
        (first.await.unwrap().unwrap(), third.await.unwrap().unwrap()),
        (Swap::Done, Swap::Done)
    );
    assert_eq!(engine.batches(), [[key("first")], [key("third")]]);
}

/// The batch of the first swap never ends. The second one waits behind it.
#[tokio::test]
async fn a_late_swap_is_ambiguous_only_if_it_is_in_a_batch() {
    let engine = Engine::new(0);
    let lanes = lanes(&engine, Duration::from_secs(2));
    let first = call(&lanes, "first", Revision::NONE, &after(&Record::absent())).await;
    let second = call(&lanes, "second", Revision::NONE, &after(&Record::absent())).await;
    assert_eq!(
        first.await.unwrap().unwrap_err().kind(),
        RegisterErrorKind::Ambiguous
    );
    assert_eq!(
        second.await.unwrap().unwrap_err().kind(),
        RegisterErrorKind::Unavailable
    );
    engine.allowed.add_permits(100);
    settle().await;
    assert_eq!(
        engine.records.load(&key("second")).await.unwrap(),
        None,
        "nothing was changed"
    );
    assert_eq!(engine.batches(), [[key("first")]]);
    assert!(
        engine.records.load(&key("first")).await.unwrap().is_some(),
        "the swap in the batch took place"
    );
}

#[tokio::test]
async fn a_late_load_changes_nothing() {
    let engine = Engine::new(0);
    let error = lanes(&engine, Duration::from_millis(10))
        .load(&key("k"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Unavailable);
}
