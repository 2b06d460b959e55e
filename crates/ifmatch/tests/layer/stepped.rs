//! Random interleavings in one process, with a clock that is stepped at random in both directions by any amount.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch::ConditionalLayer;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_runtime::{Clock, async_trait};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::support::{Sent, ask, durable, request, send, with_authority};

const TIMEOUT: Duration = Duration::from_millis(500);

/// Pseudo-random numbers from a seed (`SplitMix64`). Clones share the sequence.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut number = self.0.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ number >> 31) % sides
    }

    async fn nap(&self, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).unwrap();
        tokio::time::sleep(Duration::from_micros(self.roll(micros + 1))).await;
    }
}

/// Tokio's time plus the steps. Its timers ignore the steps.
#[derive(Clone)]
struct Stepped(Instant, Arc<AtomicU64>);

#[async_trait]
impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.1.load(Ordering::SeqCst)).saturating_add(self.0.elapsed())
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A document that detects overlapping writes, and writes that take effect on another version than they name.
#[derive(Clone)]
struct Document {
    dice: Dice,
    text: Arc<Mutex<String>>,
    running: Arc<AtomicUsize>,
    violations: Arc<Mutex<Vec<String>>>,
}

fn tag(text: &str) -> String {
    format!("\"{}\"", ContentHash::of(text.as_bytes()).hex())
}

/// Counts a handler from its start until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Document {
    async fn answer(self, request: Request<Sent>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        if head.method == Method::GET {
            let text = self.text.lock().unwrap().clone();
            self.dice.nap(TIMEOUT / 20).await;
            return Response::new(Full::from(text));
        }
        let others = self.running.fetch_add(1, Ordering::SeqCst);
        let _running = Running(Arc::clone(&self.running));
        if others > 0 {
            self.violations
                .lock()
                .unwrap()
                .push("two handlers run at once".to_owned());
        }
        self.dice
            .nap(if self.dice.roll(4) == 0 {
                TIMEOUT * 2
            } else {
                TIMEOUT / 20
            })
            .await;
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let expected = head.headers["x-expect"].to_str().unwrap();
        {
            let mut current = self.text.lock().unwrap();
            if tag(&current) != expected {
                self.violations
                    .lock()
                    .unwrap()
                    .push(format!("{text} replaces {current}, which it did not name"));
            }
            *current = text;
        }
        self.dice
            .nap(if self.dice.roll(8) == 0 {
                TIMEOUT * 2
            } else {
                TIMEOUT / 20
            })
            .await;
        let status = if self.dice.roll(8) == 0 { 500 } else { 204 };
        Response::builder()
            .status(status)
            .body(Full::default())
            .unwrap()
    }
}

impl Service<Request<Sent>> for Document {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let document = self.clone();
        Box::pin(async move { Ok(document.answer(request).await) })
    }
}

/// Returns the number of acknowledged writes.
async fn round(seed: u64, authoritative: bool) -> usize {
    let dice = Dice(Arc::new(AtomicU64::new(seed)));
    let clock = Stepped(
        Instant::now(),
        Arc::new(AtomicU64::new(1_790_000_000_000_000)),
    );
    let document = Document {
        dice: dice.clone(),
        text: Arc::default(),
        running: Arc::default(),
        violations: Arc::default(),
    };
    let builder = ConditionalLayer::builder()
        .register(durable())
        .clock(clock.clone());
    let builder = builder
        .write_timeout(TIMEOUT)
        .lock_timeout(TIMEOUT * 2)
        .grace_period(TIMEOUT / 20);
    let layer = with_authority(builder, authoritative).build();
    let service = layer.layer(document.clone());
    let writers = (0..4).map(|writer| {
        let (service, dice) = (service.clone(), dice.clone());
        tokio::spawn(async move {
            let mut acknowledged = 0;
            for number in 0..20 {
                let current = ask(&service, "GET /a", &[]).await.tag();
                dice.nap(TIMEOUT / 50).await;
                let fields = [
                    ("if-match", current.as_str()),
                    ("x-expect", current.as_str()),
                ];
                let reply = send(
                    &service,
                    request("PUT /a", &fields, &format!("{writer}-{number}")),
                )
                .await;
                acknowledged += usize::from(reply.status.is_success());
            }
            acknowledged
        })
    });
    let writers = join_all(writers.collect::<Vec<_>>());
    tokio::pin!(writers);
    let acknowledged: usize = loop {
        let nap = dice.nap(TIMEOUT);
        tokio::select! {
            ended = &mut writers => break ended.into_iter().map(Result::unwrap).sum(),
            () = nap => {}
        }
        // From milliseconds to days.
        let by = (1 << dice.roll(37)) * (1 + dice.roll(3));
        let step = |at: u64| if dice.roll(2) == 0 { at + by } else { at - by };
        clock
            .1
            .store(step(clock.1.load(Ordering::SeqCst)), Ordering::SeqCst);
    };
    let violations = document.violations.lock().unwrap();
    assert!(
        violations.is_empty(),
        "seed {seed}, authoritative {authoritative}: {violations:?}"
    );
    acknowledged
}

#[tokio::test(start_paused = true)]
async fn clock_steps_cause_no_overlap_and_no_lost_update() {
    let mut acknowledged = 0;
    for seed in 0..16 {
        for authoritative in [true, false] {
            acknowledged += round(seed, authoritative).await;
        }
    }
    assert!(
        acknowledged > 100,
        "only {acknowledged} writes were acknowledged: the test shows little"
    );
}
