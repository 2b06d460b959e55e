//! Clients that increment a counter with GET and conditional PUT, over real sockets. The handler stores any value that it
//! receives, so every lost update shows in the sum.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use ifmatch::ConditionalLayer;
use support::{Client, Server, full};
use tower::{Layer, service_fn};
use tower_http::compression::CompressionLayer;

use crate::serve;

/// The behavior of the handler on successive writes. Most succeed.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Good,
    Slow,
    Fail,
    WriteAndFail,
    Panic,
    WriteAndPanic,
    Hang,
    WriteAndHang,
}

impl Mood {
    fn nth(turn: u64) -> Self {
        match random(turn) % 24 {
            0 => Self::Fail,
            1 => Self::WriteAndFail,
            2 => Self::Panic,
            3 => Self::WriteAndPanic,
            4 => Self::Hang,
            5 => Self::WriteAndHang,
            6..9 => Self::Slow,
            _ => Self::Good,
        }
    }

    fn writes(self) -> bool {
        !matches!(self, Self::Fail | Self::Panic | Self::Hang)
    }
}

/// The handler and its state.
#[derive(Clone, Default)]
struct Counter(Arc<Inner>);

#[derive(Default)]
struct Inner {
    value: AtomicU64,
    turns: AtomicU64,
    moody: bool,
}

impl Counter {
    fn moody() -> Self {
        Self(Arc::new(Inner {
            moody: true,
            ..Inner::default()
        }))
    }

    fn value(&self) -> u64 {
        self.0.value.load(Ordering::SeqCst)
    }

    async fn handle<B>(self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data: Send, Error: std::fmt::Debug> + Send,
    {
        if request.method() == Method::GET {
            let value = self.value();
            let padding = "x".repeat(200);
            let mut response = Response::new(Full::from(format!(
                "{{\"value\":{value},\"padding\":\"{padding}\"}}"
            )));
            response.headers_mut().insert("x-value", value.into());
            response.headers_mut().insert(
                "content-type",
                http::HeaderValue::from_static("application/json"),
            );
            return response;
        }
        let body = request
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        let value = body
            .ok()
            .and_then(|body| std::str::from_utf8(&body).ok()?.parse().ok());
        let Some(value) = value else {
            return status(StatusCode::BAD_REQUEST);
        };
        let turn = self.0.turns.fetch_add(1, Ordering::SeqCst);
        let mood = if self.0.moody {
            Mood::nth(turn)
        } else {
            Mood::Good
        };
        if matches!(mood, Mood::Slow) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if mood.writes() {
            self.0.value.store(value, Ordering::SeqCst);
        }
        match mood {
            Mood::Good | Mood::Slow => status(StatusCode::NO_CONTENT),
            Mood::Fail | Mood::WriteAndFail => status(StatusCode::INTERNAL_SERVER_ERROR),
            Mood::Panic | Mood::WriteAndPanic => panic!("requested panic"),
            Mood::Hang | Mood::WriteAndHang => std::future::pending().await,
        }
    }

    fn router(&self) -> Router {
        let handle =
            |State(counter): State<Self>, request: axum::extract::Request| counter.handle(request);
        Router::new()
            .route("/counter", get(handle).put(handle))
            .with_state(self.clone())
    }
}

/// The results known to the clients.
#[derive(Debug, Default)]
struct Sum {
    /// The tags in the conditions of acknowledged writes.
    acknowledged: Vec<String>,
    /// The number of writes with an unknown outcome.
    unknown: u64,
}

/// The work of one client.
struct Work {
    client: Client,
    number: u64,
    increments: usize,
    /// `true` if the client disconnects during some writes.
    impatient: bool,
    coding: &'static str,
}

impl Work {
    async fn run(self) -> Sum {
        let mut sum = Sum::default();
        let mut attempt = 0;
        while sum.acknowledged.len() < self.increments {
            attempt += 1;
            assert!(attempt < 20_000, "no progress: {sum:?}");
            let current = self
                .client
                .get("/counter", &[("accept-encoding", self.coding)])
                .await
                .expect(200);
            let value: u64 = current.header("x-value").parse().expect("a number");
            let put = Request::put("/counter")
                .header("if-match", current.etag())
                .header("accept-encoding", self.coding)
                .body(full((value + 1).to_string()))
                .expect("a request");
            let patience = match random(self.number * 1_000_003 + attempt) % 16 {
                0 if self.impatient => Duration::from_micros(random(attempt) % 3_000),
                _ => Duration::from_secs(30),
            };
            match tokio::time::timeout(patience, self.client.try_send(put))
                .await
                .ok()
                .and_then(Result::ok)
            {
                Some(answer) if answer.status.is_success() => {
                    sum.acknowledged.push(current.etag().to_owned());
                }
                Some(answer) if answer.status.is_client_error() => {
                    assert!(matches!(answer.status.as_u16(), 409 | 412), "{answer:?}");
                    let pause = random(self.number * 7_919 + attempt) % 60_000;
                    tokio::time::sleep(Duration::from_micros(pause)).await;
                }
                _ => sum.unknown += 1,
            }
        }
        sum
    }
}

async fn increment(
    server: &Server,
    clients: u64,
    increments: usize,
    impatient: bool,
    coding: &'static str,
) -> Sum {
    let work = (0..clients).map(|number| {
        tokio::spawn(
            Work {
                client: server.client(),
                number,
                increments,
                impatient,
                coding,
            }
            .run(),
        )
    });
    let mut total = Sum::default();
    for client in work.collect::<Vec<_>>() {
        let sum = client.await.expect("the client finishes");
        total.acknowledged.extend(sum.acknowledged);
        total.unknown += sum.unknown;
    }
    let bases: HashSet<&String> = total.acknowledged.iter().collect();
    assert_eq!(
        bases.len(),
        total.acknowledged.len(),
        "two acknowledged writes had the same base"
    );
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_of_32_clients_is_lost_on_axum() {
    let counter = Counter::default();
    let server = serve(ConditionalLayer::new().layer(counter.router())).await;
    let sum = increment(&server, 32, 200, false, "identity").await;
    assert_eq!((counter.value(), sum.unknown), (6_400, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_of_32_clients_is_lost_on_hyper_with_an_authoritative_register() {
    let counter = Counter::default();
    let inner = {
        let counter = counter.clone();
        service_fn(move |request| {
            let counter = counter.clone();
            async move { Ok::<_, Infallible>(counter.handle(request).await) }
        })
    };
    let server = serve(
        ConditionalLayer::builder()
            .authoritative()
            .build()
            .layer(inner),
    )
    .await;
    let sum = increment(&server, 32, 200, false, "identity").await;
    assert_eq!((counter.value(), sum.unknown), (6_400, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_by_a_failing_handler() {
    for authoritative in [true, false] {
        let counter = Counter::moody();
        let builder = ConditionalLayer::builder();
        let builder = if authoritative {
            builder.authoritative()
        } else {
            builder
        };
        let layer = builder
            .write_timeout(Duration::from_millis(100))
            .grace_period(Duration::from_millis(5))
            .build();
        let server = serve(layer.layer(counter.router())).await;
        let sum = increment(&server, 32, 10, true, "identity").await;
        assert!(sum.unknown > 0, "nothing went wrong: {sum:?}");
        // A write of a disconnected client may end after the last response.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (value, sure) = (counter.value(), sum.acknowledged.len() as u64);
        assert!(
            sure <= value && value <= sure + sum.unknown,
            "{value}, {sure} acknowledged, {} unknown",
            sum.unknown
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost_with_compression_on_either_side() {
    let counter = Counter::default();
    let inside = ConditionalLayer::new().layer(CompressionLayer::new().layer(counter.router()));
    let sum = increment(&serve(inside).await, 8, 25, false, "gzip").await;
    assert_eq!((counter.value(), sum.unknown), (200, 0));

    let counter = Counter::default();
    let layer = ConditionalLayer::builder().behind_compression().build();
    let outside = CompressionLayer::new().layer(layer.layer(counter.router()));
    let sum = increment(&serve(outside).await, 8, 25, false, "gzip").await;
    assert_eq!((counter.value(), sum.unknown), (200, 0));
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// A pseudo-random number, the same in each run (`SplitMix64`).
fn random(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
