//! Guarantees for racing callers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use ifmatch_core::command::{Authority, Begin, Command, Outcome, Refusal};
use ifmatch_core::precondition::Preconditions;

use super::workload::Workload;
use super::{RaceSize, fresh_key, history, put};
use crate::driver::Driver;
use crate::key::Key;
use crate::register::{Register, Scan};

/// Every racer writes with `If-None-Match: *`. One creates the resource, the others are refused.
pub(super) async fn one_creator(register: &Arc<dyn Register>, size: RaceSize) {
    let create = if_none_match_any();
    for _ in 0..size.rounds {
        let key = fresh_key("creator");
        let created = Arc::new(AtomicUsize::new(0));
        race(size.racers, |racer| {
            let (driver, key) = (
                Driver::new(Arc::clone(register)).assume_absent(),
                key.clone(),
            );
            let (create, created) = (create.clone(), Arc::clone(&created));
            async move {
                let write = Command::Write(put(&racer.to_le_bytes(), &create));
                match driver.apply(&key, &write).await.expect("apply").outcome {
                    Outcome::Written(_) => created.fetch_add(1, Ordering::Relaxed),
                    Outcome::Refused(Refusal::PreconditionFailed { .. }) => 0,
                    other => panic!("neither created nor refused: {other:?}"),
                };
            }
        })
        .await;
        assert_eq!(
            created.load(Ordering::Relaxed),
            1,
            "exactly one racer creates the resource"
        );
    }
}

/// Every racer repeatedly reads a number and writes its successor if the number hasn't changed since.
pub(super) async fn increments_are_exact(register: &Arc<dyn Register>, size: RaceSize) {
    let key = fresh_key("counter");
    race(size.racers, |_| {
        let (driver, key) = (
            Driver::new(Arc::clone(register)).assume_absent(),
            key.clone(),
        );
        async move {
            let mut wins = 0;
            while wins < size.rounds {
                wins += usize::from(increment(&driver, &key).await);
            }
        }
    })
    .await;
    let record = register
        .load(&key)
        .await
        .expect("load")
        .expect("the counter exists");
    let sum = number(
        record
            .state(record.revision().timestamp())
            .version()
            .map(|version| &version.payload()[..]),
    );
    assert_eq!(
        sum,
        (size.racers * size.rounds) as u64,
        "no increment is lost"
    );
}

async fn increment(driver: &Driver, key: &Key) -> bool {
    let record = driver.load(key).await.expect("load");
    let version = record.settled(driver.now());
    let next = number(version.map(|version| &version.payload()[..])) + 1;
    let condition = version
        .and_then(|version| version.tags().first())
        .map_or_else(if_none_match_any, |tag| {
            conditions(header::IF_MATCH, tag.to_header())
        });
    let write = Command::Write(put(&next.to_le_bytes(), &condition));
    match driver.apply(key, &write).await.expect("apply").outcome {
        Outcome::Written(_) => true,
        Outcome::Refused(Refusal::PreconditionFailed { .. }) => false,
        other => panic!("neither written nor refused: {other:?}"),
    }
}

/// Every racer has its own driver, as another process would. It takes the permit, checks that it is alone, and returns the
/// permit.
pub(super) async fn permits_exclude_each_other(register: &Arc<dyn Register>, size: RaceSize) {
    let key = fresh_key("permit");
    let inside = Arc::new(AtomicUsize::new(0));
    let patience = Duration::from_secs(60);
    race(size.racers, |_| {
        let driver = Driver::new(Arc::clone(register)).with_patience(patience);
        let (key, inside) = (key.clone(), Arc::clone(&inside));
        async move {
            let begin = Command::Begin(
                Begin::new(
                    &Method::PUT,
                    &Preconditions::NONE,
                    ifmatch_runtime::nonce().expect("random"),
                    Duration::from_secs(600),
                )
                .with_authority(Authority::Register),
            );
            let outcome = driver
                .apply_in_turn(&key, &begin)
                .await
                .expect("apply")
                .outcome;
            let Outcome::Granted(grant) = outcome else {
                panic!("no permit: {outcome:?}")
            };
            assert_eq!(
                inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two writers hold the permit"
            );
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            let abort = Command::Abort(grant.token);
            let outcome = driver.apply(&key, &abort).await.expect("apply").outcome;
            assert_eq!(
                outcome,
                Outcome::Released,
                "the permit is still ours at the end"
            );
        }
    })
    .await;
}

/// Racers share the highest revision they have written or read. Every later load, scan or revision lookup must find that
/// revision or a later one. Fails for a cache that an older record can enter.
pub(super) async fn reads_never_go_back(register: &Arc<dyn Register>, size: RaceSize) {
    let key = fresh_key("reads");
    let known = Arc::new(AtomicU64::new(0));
    let writing = Arc::new(AtomicUsize::new(size.racers.div_ceil(4)));
    race(size.racers, |racer| {
        let driver = Driver::new(Arc::clone(register)).assume_absent();
        let (key, known, writing) = (key.clone(), Arc::clone(&known), Arc::clone(&writing));
        async move {
            if racer % 4 == 0 {
                let none = Preconditions::default();
                for _ in 0..size.rounds {
                    let write = Command::Write(put(&racer.to_le_bytes(), &none));
                    let applied = driver.apply(&key, &write).await.expect("apply");
                    known.fetch_max(applied.after.revision().get(), Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            }
            while writing.load(Ordering::SeqCst) > 0 {
                look(&driver, &key, &known).await;
                tokio::task::yield_now().await;
            }
            look(&driver, &key, &known).await;
        }
    })
    .await;
}

async fn look(driver: &Driver, key: &Key, known: &AtomicU64) {
    let before = known.load(Ordering::SeqCst);
    let found = driver.load(key).await.expect("load").revision().get();
    assert!(
        found >= before,
        "a load finds revision {found} after {before} was observed"
    );
    let before = known.fetch_max(found, Ordering::SeqCst).max(found);
    let scan = Scan {
        prefix: key.as_str(),
        after: None,
        limit: 1,
    };
    let page = driver.register().scan(&scan).await.expect("scan");
    let found = page
        .first()
        .map_or(0, |(_, record)| record.revision().get());
    assert!(
        found >= before,
        "a scan finds revision {found} after {before} was observed"
    );
    let before = known.fetch_max(found, Ordering::SeqCst).max(found);
    let Some(found) = driver.revision_at_once(key) else {
        return;
    };
    assert!(
        found.get() >= before,
        "the cached revision is {found} after {before} was observed"
    );
    known.fetch_max(found.get(), Ordering::SeqCst);
}

/// Racers load, list and swap a few keys at random. Their recorded history must be linearizable.
pub(super) async fn histories_are_linearizable(register: &Arc<dyn Register>, size: RaceSize) {
    let workload = Workload::new(fresh_key("history").as_str(), 3, size.racers);
    let clock = Arc::new(AtomicU64::new(0));
    let operations = Arc::new(Mutex::new(Vec::new()));
    race(size.racers, |racer| {
        let (mut client, register) = (workload.client(racer), Arc::clone(register));
        let (clock, operations) = (Arc::clone(&clock), Arc::clone(&operations));
        async move {
            let now = || clock.fetch_add(1, Ordering::SeqCst);
            while client.wins() < size.rounds {
                client.step(&*register, now).await;
                tokio::task::yield_now().await;
            }
            client.load_all(&*register, now).await;
            operations
                .lock()
                .expect("no client panics")
                .extend(client.into_history());
        }
    })
    .await;
    let operations = operations.lock().expect("no client panics");
    history::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
}

async fn race<F>(racers: usize, racer: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..racers).map(|at| tokio::spawn(racer(at))).collect();
    for task in tasks {
        if let Err(error) = task.await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

fn number(payload: Option<&[u8]>) -> u64 {
    payload
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn if_none_match_any() -> Preconditions {
    conditions(header::IF_NONE_MATCH, HeaderValue::from_static("*"))
}

fn conditions(name: http::HeaderName, value: HeaderValue) -> Preconditions {
    let mut headers = HeaderMap::new();
    headers.insert(name, value);
    Preconditions::from_headers(&headers)
}
