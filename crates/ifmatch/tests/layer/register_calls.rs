//! How often the layer calls a register that it can't ask without waiting, and what it must not save.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use ifmatch::{Builder, ConditionalLayer, ConditionalService};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Epoch, Key, MemoryRegister, Register, RegisterError, Swap, Wrapper, async_trait,
};
use tower::Layer;

use crate::support::{ManualClock, Reply, World, ask, request, send, settle};

const SECOND: Duration = Duration::from_secs(1);

/// A process's connection to records elsewhere, which counts its calls.
struct Remote {
    records: Arc<MemoryRegister>,
    calls: Arc<AtomicUsize>,
    engine: Arc<Mutex<Engine>>,
    /// The engine that answers the next call.
    next_engine: Arc<Mutex<Option<Engine>>>,
}

impl Remote {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(next) = self.next_engine.lock().unwrap().take() {
            *self.engine.lock().unwrap() = next;
        }
    }
}

#[async_trait]
impl Wrapper for Remote {
    fn inner(&self) -> &dyn Register {
        &self.records
    }

    fn engine(&self) -> Engine {
        *self.engine.lock().unwrap()
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.called();
        self.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.called();
        // As over a network: other processes take their turn.
        tokio::task::yield_now().await;
        self.records.compare_and_swap(key, expected, next).await
    }
}

/// A process with the layer.
struct Process {
    service: ConditionalService<World>,
    calls: Arc<AtomicUsize>,
    /// The engine that answers the next call of its register.
    next_engine: Arc<Mutex<Option<Engine>>>,
}

impl Process {
    /// Returns the number of calls since the last time.
    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    async fn tag(&self) -> String {
        ask(&self.service, "GET /a", &[]).await.tag()
    }

    async fn put(&self, fields: &[(&str, &str)], text: &str) -> u16 {
        send(&self.service, request("PUT /a", fields, text))
            .await
            .status
            .as_u16()
    }
}

/// Processes in front of one service, with one register.
fn processes<const N: usize>(clock: &ManualClock, world: &World) -> [Process; N] {
    let records = Arc::new(MemoryRegister::unbounded());
    std::array::from_fn(|_| {
        let builder = ConditionalLayer::builder().clock(clock.clone());
        process(builder, &records, world, Engine::default())
    })
}

fn process(
    builder: Builder,
    records: &Arc<MemoryRegister>,
    world: &World,
    engine: Engine,
) -> Process {
    let (calls, next_engine) = (
        Arc::<AtomicUsize>::default(),
        Arc::<Mutex<Option<Engine>>>::default(),
    );
    let engine = Arc::new(Mutex::new(engine));
    let remote = Remote {
        records: Arc::clone(records),
        calls: Arc::clone(&calls),
        engine,
        next_engine: Arc::clone(&next_engine),
    };
    Process {
        service: builder.register(remote).build().layer(world.clone()),
        calls,
        next_engine,
    }
}

#[tokio::test]
async fn reads_call_the_register_once_in_a_while() {
    let clock = ManualClock::default();
    let [here] = processes(&clock, &World::with(&[("/a", "one")]));
    let tag = here.tag().await;
    clock.advance(SECOND * 2);
    let first = ask(&here.service, "GET /a", &[]).await;
    let date = first.header("last-modified").expect("a date");
    here.calls();
    for _ in 0..10 {
        let read = ask(&here.service, "GET /a", &[]).await;
        assert_eq!(
            (read.tag(), read.header("last-modified")),
            (tag.clone(), Some(date.clone()))
        );
        for fields in [
            &[("if-none-match", &*tag)][..],
            &[("if-none-match", &tag), ("if-modified-since", &date)],
        ] {
            assert_eq!(ask(&here.service, "GET /a", fields).await.status, 304);
        }
        assert_eq!(
            ask(&here.service, "HEAD /a", &[])
                .await
                .header("last-modified"),
            Some(date.clone())
        );
        let part = ask(
            &here.service,
            "GET /a",
            &[("range", "bytes=0-0"), ("if-range", &tag)],
        )
        .await;
        assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"o"[..]));
    }
    assert_eq!(here.calls(), 0);
    // A condition on a date asks.
    assert_eq!(
        ask(&here.service, "GET /a", &[("if-modified-since", &date)])
            .await
            .status,
        304
    );
    assert_eq!(here.calls(), 1);
    clock.advance(SECOND * 10);
    assert_eq!(
        ask(&here.service, "GET /a", &[])
            .await
            .header("last-modified"),
        Some(date)
    );
    assert_eq!(here.calls(), 1);
}

#[tokio::test]
async fn a_write_calls_the_register_twice_and_three_times_if_another_process_was_faster() {
    let clock = ManualClock::default();
    let [here, there] = processes(&clock, &World::with(&[("/a", "one")]));
    assert_eq!(
        here.put(&[("if-match", &here.tag().await)], "two").await,
        204
    );
    here.calls();
    for text in ["three", "four"] {
        let tag = here.tag().await;
        here.calls();
        assert_eq!(here.put(&[("if-match", &tag)], text).await, 204);
        assert_eq!(here.calls(), 2, "{text}, with a condition");
        assert_eq!(here.put(&[], text).await, 204);
        assert_eq!(here.calls(), 2, "{text}, without a condition");
        assert_eq!(here.put(&[("if-match", "\"stale\"")], text).await, 412);
        assert_eq!(here.calls(), 1, "a refusal is computed from a load");
    }
    let old = here.tag().await;
    assert_eq!(there.put(&[("if-match", &old)], "five").await, 204);
    let new = there.tag().await;
    here.calls();
    // What this process has seen last is two revisions old.
    assert_eq!(here.put(&[("if-match", &new)], "six").await, 204);
    assert_eq!(here.calls(), 3, "with a condition");
    assert_eq!(there.put(&[], "seven").await, 204);
    assert_eq!(here.put(&[], "eight").await, 204);
    assert_eq!(here.calls(), 3, "without a condition");
}

/// Process A has seen the record at r1, where no write is in flight. B then writes, so the record is at r3. A begins from r1:
///
/// - A's probe may find the version before B's write, so A's condition is true. But A's permit is a swap that expects r1.
/// - B's write may be in flight, which A doesn't know. The swap fails as well.
///
/// In both cases A must learn of B's write before it gets a permit.
#[tokio::test]
async fn a_process_that_remembers_an_old_record_does_not_win_with_an_old_tag() {
    let clock = ManualClock::default();
    let world = World::with(&[("/a", "one")]);
    let [here, there] = processes(&clock, &world);
    let one = here.tag().await;
    assert_eq!(here.put(&[("if-match", &one)], "two").await, 204);
    let two = here.tag().await;
    // Its write is in flight.
    let held = tokio::spawn({
        let (service, tag) = (there.service.clone(), two.clone());
        async move {
            send(
                &service,
                request(
                    "PUT /a",
                    &[("if-match", &tag), ("x-hold-before", "there")],
                    "there",
                ),
            )
            .await
        }
    });
    world.reached("there").await;
    let late = tokio::spawn({
        let (service, tag) = (here.service.clone(), two.clone());
        async move { send(&service, request("PUT /a", &[("if-match", &tag)], "here")).await }
    });
    settle().await;
    assert!(!late.is_finished(), "it has written beside another writer");
    world.release("there");
    assert_eq!(held.await.unwrap().status, 204);
    clock.advance(SECOND);
    assert_eq!(late.await.unwrap().status, 412);
    assert_eq!(world.get("/a").as_deref(), Some("there"));
    // It has ended.
    let three = here.tag().await;
    assert_eq!(there.put(&[("if-match", &three)], "four").await, 204);
    assert_eq!(here.put(&[("if-match", &three)], "late").await, 412);
    assert_eq!(world.get("/a").as_deref(), Some("four"));
}

#[tokio::test]
async fn of_writers_in_processes_that_remember_records_one_wins_for_each_tag() {
    let clock = ManualClock::default();
    let world = World::with(&[("/a", "0")]);
    let all: [Process; 3] = processes(&clock, &world);
    for round in 1..100 {
        let tag = all[round % 3].tag().await;
        let written = world.runs(&Method::PUT);
        let attempts = (0..9).map(|writer| {
            let (process, tag) = (&all[writer % 3], tag.clone());
            async move {
                process
                    .put(&[("if-match", &tag)], &format!("{round} by {writer}"))
                    .await
            }
        });
        let ticking = async {
            // Polls of writes in flight wait by this clock.
            for _ in 0..10_000 {
                clock.advance(SECOND / 100);
                tokio::task::yield_now().await;
            }
        };
        let answers = tokio::select! {
            answers = join_all(attempts) => answers,
            () = ticking => panic!("round {round}: a writer still waits after 100 seconds"),
        };
        let won: Vec<_> = (0..9).filter(|writer| answers[*writer] == 204).collect();
        let [winner] = won[..] else {
            panic!("round {round}: {won:?} of {answers:?} have won")
        };
        assert_eq!(
            world.get("/a"),
            Some(format!("{round} by {winner}")),
            "round {round}"
        );
        assert_eq!(world.runs(&Method::PUT) - written, 1, "round {round}");
    }
}

/// A reader remembers the date of "one". Elsewhere "two" is written, and "one" again. The reader's date is too early from then on, and
/// no answer may confirm "two" to a client that has it.
#[tokio::test]
async fn a_remembered_date_confirms_no_other_version() {
    let clock = ManualClock::default();
    let [here, there] = processes(&clock, &World::with(&[("/a", "one")]));
    here.tag().await;
    clock.advance(SECOND * 2);
    let first = ask(&here.service, "GET /a", &[]).await;
    there.put(&[], "two").await;
    clock.advance(SECOND * 2);
    let second = ask(&there.service, "GET /a", &[]).await;
    // Here, too, although "one" is what's remembered.
    let seen = ask(&here.service, "GET /a", &[]).await;
    assert_eq!(
        (seen.tag(), seen.header("last-modified")),
        (second.tag(), second.header("last-modified"))
    );
    here.tag().await;
    there.put(&[], "one").await;
    clock.advance(SECOND * 2);
    let date = |reply: &Reply| reply.header("last-modified").expect("a date");
    for process in [&here, &there] {
        for has in [date(&first), date(&second)] {
            let read = ask(&process.service, "GET /a", &[("if-modified-since", &has)]).await;
            assert_eq!(
                (read.status.as_u16(), &read.body[..]),
                (200, &b"one"[..]),
                "a client that has {has}"
            );
            let part = ask(
                &process.service,
                "GET /a",
                &[("range", "bytes=0-0"), ("if-range", &has)],
            )
            .await;
            assert_eq!(part.status, 200, "a client that has {has}");
        }
        assert_eq!(process.tag().await, first.tag(), "the tag is the content's");
    }
}

/// The engine fails over, and loses the last swap:
///
/// 1. This process has seen version "four". Elsewhere "five" is written, and recorded.
/// 2. Another server takes over without that record, in a new epoch, which no one here has heard of.
/// 3. A writer names "four". The remembered record has it, and a swap that expects it would succeed: the update to "five" would be lost.
#[tokio::test]
async fn after_a_failover_no_remembered_record_decides() {
    let (clock, world) = (ManualClock::default(), World::with(&[("/a", "three")]));
    let (records, key) = (
        Arc::new(MemoryRegister::unbounded()),
        Key::new("/a").unwrap(),
    );
    let engine = Engine {
        fails_over: true,
        ..Engine::default()
    };
    let [here, there] = [(); 2].map(|()| {
        let builder = ConditionalLayer::builder()
            .clock(clock.clone())
            .authoritative();
        process(builder, &records, &world, engine)
    });
    assert_eq!(here.put(&[], "four").await, 204);
    let four = here.tag().await;
    let old = records.load(&key).await.unwrap().expect("a record");
    assert_eq!(there.put(&[("if-match", &four)], "five").await, 204);
    let lost = records
        .load(&key)
        .await
        .unwrap()
        .expect("a record")
        .revision();
    assert_eq!(
        records
            .compare_and_swap(&key, lost, Some(&old))
            .await
            .unwrap(),
        Swap::Done
    );
    *here.next_engine.lock().unwrap() = Some(Engine {
        epoch: Epoch { number: 1, lost },
        ..engine
    });
    assert_eq!(here.put(&[("if-match", &four)], "lost").await, 412);
    assert_eq!(world.get("/a").as_deref(), Some("five"));
}
