//! Clocks that are stepped, stopped or different: handlers never overlap, and permits never outlast their grant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch::ConditionalLayer;
use ifmatch_core::date::Timestamp;
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_runtime::{Clock, async_trait};
use tower::Layer;

use crate::leases::{A, acquire};
use crate::support::{
    ManualClock, World, ask, durable, ended, hold_swap, request, send, settle, with_authority,
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A time that drives all timers, and a clock with an offset from it in microseconds.
#[derive(Clone, Debug, Default)]
struct Skewed {
    time: ManualClock,
    ahead: Arc<AtomicU64>,
}

impl Skewed {
    fn of(time: &ManualClock, ahead: Duration) -> Self {
        let clock = Self {
            time: time.clone(),
            ahead: Arc::default(),
        };
        clock.step(ahead);
        clock
    }

    /// Steps the clock without firing any timer.
    fn step(&self, by: Duration) {
        self.ahead
            .fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.time
            .now()
            .saturating_add(Duration::from_micros(self.ahead.load(Ordering::SeqCst)))
    }

    async fn sleep(&self, duration: Duration) {
        self.time.sleep(duration).await;
    }
}

/// Even a clock that breaks its contract (for example on a suspended machine with frozen timers) ends the permit of a
/// handler that still runs. The next writer of this process waits until the handler is gone.
#[tokio::test]
async fn an_expired_permit_admits_no_second_handler_while_the_first_runs() {
    for authoritative in [true, false] {
        let (clock, world) = (Skewed::default(), World::with(&[("/a", "one")]));
        let builder = ConditionalLayer::builder()
            .register(durable())
            .clock(clock.clone());
        let builder = with_authority(builder, authoritative);
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let put = |hold: Option<&'static str>, text: &'static str| {
            let (service, tag) = (service.clone(), tag.clone());
            tokio::spawn(async move {
                let mut fields = vec![("if-match", tag.as_str())];
                fields.extend(hold.map(|hold| ("x-hold-before", hold)));
                send(&service, request("PUT /a", &fields, text)).await
            })
        };
        let first = put(Some("first"), "first");
        world.reached("first").await;
        clock.step(SECOND * 60);
        let second = put(None, "second");
        settle().await;
        assert!(
            !second.is_finished(),
            "it ran concurrently with the first one: {:?}",
            second.await
        );
        assert_eq!(world.runs(&http::Method::PUT), 1);
        // The handler is due for its next step, but its deadline has passed.
        world.release("first");
        let first = first.await.unwrap();
        assert_eq!(
            (first.status.as_u16(), first.problem().as_str()),
            (503, "outcome-unknown")
        );
        clock.time.advance(SECOND);
        assert_eq!(second.await.unwrap().status, 204);
        assert_eq!(
            world.get("/a").as_deref(),
            Some("second"),
            "the first write took effect later"
        );
    }
}

/// The handler has ended, but its result is slow to reach the register. If another write overtook it, the first client
/// wouldn't learn the outcome.
#[tokio::test]
async fn an_expired_permit_lets_no_write_overtake_a_pending_commit() {
    let (clock, world, register) = (Skewed::default(), World::with(&[("/a", "one")]), durable());
    let builder = ConditionalLayer::builder()
        .register(register.clone())
        .clock(clock.clone());
    let service = builder.build().layer(world.clone());
    let put = |hold: Option<&'static str>, text: &'static str| {
        let service = service.clone();
        let fields: Vec<_> = hold
            .map(|hold| ("x-hold-before", hold))
            .into_iter()
            .collect();
        tokio::spawn(async move { send(&service, request("PUT /a", &fields, text)).await })
    };
    let first = put(Some("first"), "first");
    world.reached("first").await;
    let (begun, go_on) = hold_swap(&register);
    world.release("first");
    begun.await.expect("the outcome is on its way");
    clock.step(SECOND * 60);
    let second = put(None, "second");
    settle().await;
    assert_eq!(world.runs(&http::Method::PUT), 1);
    go_on.send(()).expect("the write waits for the register");
    assert_eq!(first.await.unwrap().status, 204);
    clock.time.advance(SECOND);
    assert_eq!(second.await.unwrap().status, 204);
    assert_eq!(world.get("/a").as_deref(), Some("second"));
}

/// The same for a lease, with a handler that started without one.
#[tokio::test]
async fn an_expired_permit_admits_no_lease_while_its_handler_runs() {
    let (clock, world) = (Skewed::default(), World::with(&[("/a", "one")]));
    let builder = ConditionalLayer::builder()
        .register(durable())
        .clock(clock.clone())
        .leases();
    let service = builder.build().layer(world.clone());
    let write = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-before", "write")], "two"),
            )
            .await
        }
    });
    world.reached("write").await;
    clock.step(SECOND * 60);
    let acquired = tokio::spawn({
        let service = service.clone();
        async move { acquire(&service, A, "15").await }
    });
    settle().await;
    assert!(!acquired.is_finished(), "{:?}", acquired.await);
    world.release("write");
    assert_eq!(write.await.unwrap().status, 503);
    clock.time.advance(SECOND);
    assert_eq!(acquired.await.unwrap().status, 201);
    assert_eq!(world.get("/a").as_deref(), Some("one"));
}

/// Three seconds are a tenth of the default write timeout.
#[tokio::test]
async fn a_process_with_a_clock_ahead_within_the_margin_never_overlaps_a_handler() {
    let (time, register, world) = (
        ManualClock::default(),
        durable(),
        World::with(&[("/a", "one")]),
    );
    let process = |ahead: Duration| {
        let builder = ConditionalLayer::builder()
            .register(register.clone())
            .clock(Skewed::of(&time, ahead));
        builder
            .lock_timeout(SECOND * 60)
            .build()
            .layer(world.clone())
    };
    let (one, ahead) = (
        process(Duration::ZERO),
        process(Duration::from_millis(2_900)),
    );
    let tag = ask(&one, "GET /a", &[]).await.tag();
    let first = tokio::spawn({
        let tag = tag.clone();
        async move {
            let fields = [("if-match", tag.as_str()), ("x-hold-before", "first")];
            send(&one, request("PUT /a", &fields, "first")).await
        }
    });
    world.reached("first").await;
    time.advance(Duration::from_millis(26_900));
    let second = tokio::spawn(async move {
        send(&ahead, request("PUT /a", &[("if-match", &tag)], "second")).await
    });
    settle().await;
    assert!(!first.is_finished() && !second.is_finished());
    time.advance(Duration::from_millis(150));
    assert_eq!(
        first.await.unwrap().status,
        503,
        "the handler must end three seconds before its permit"
    );
    time.advance(SECOND * 3);
    assert_eq!(second.await.unwrap().status, 204);
    assert_eq!(world.get("/a").as_deref(), Some("second"));
}

/// The outcome of its handler is unknown. A process with the correct clock sees the permit.
#[tokio::test]
async fn a_permit_from_a_clock_a_day_ahead_lasts_no_longer_than_granted() {
    let (time, register, world) = (
        ManualClock::default(),
        durable(),
        World::with(&[("/a", "one")]),
    );
    let process = |register: FaultyRegister, ahead: Duration| {
        let builder = ConditionalLayer::builder()
            .register(register)
            .clock(Skewed::of(&time, ahead));
        builder
            .lock_timeout(SECOND * 60)
            .build()
            .layer(world.clone())
    };
    let lost_register = FaultyRegister::on(Arc::clone(register.records())).durable();
    let (wrong, right) = (
        process(lost_register.clone(), DAY),
        process(register, Duration::ZERO),
    );
    let lost = tokio::spawn(async move {
        send(&wrong, request("PUT /a", &[("x-hold-before", "x")], "lost")).await
    });
    world.reached("x").await;
    // It won't release the permit.
    lost_register.cut(true);
    let next = tokio::spawn(async move { send(&right, request("PUT /a", &[], "next")).await });
    settle().await;
    time.advance(SECOND * 26);
    settle().await;
    assert!(
        !next.is_finished(),
        "the other handler may still run: {:?}",
        next.await
    );
    lost.abort();
    time.advance(SECOND * 4);
    assert_eq!(ended("next", next).await.status, 204);
}

#[tokio::test]
async fn dates_follow_the_wall_clock_and_survive_steps() {
    let time = ManualClock::default();
    time.skew_wall(-10);
    let world = World::with(&[("/a", "one")]);
    let builder = ConditionalLayer::builder().clock(time.clone());
    let service = builder.authoritative().build().layer(world.clone());
    ask(&service, "GET /a", &[]).await;
    time.advance(SECOND * 9);
    assert_eq!(
        ask(&service, "GET /a", &[]).await.header("last-modified"),
        None,
        "it would be later than Date"
    );
    time.advance(SECOND * 2);
    assert!(
        ask(&service, "GET /a", &[])
            .await
            .header("last-modified")
            .is_some()
    );
}
