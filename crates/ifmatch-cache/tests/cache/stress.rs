//! Readers and writers on several threads, at random: nobody who asks after a write was answered gets what was before it,
//! and no bytes come under another version's tag.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_cache::CacheLayer;
use tower::{Layer, Service, ServiceExt};

use crate::support::{TestBody, TestClock, request};

const PATHS: usize = 4;
const CLIENTS: u64 = 16;
const ROUNDS: u64 = 400;

/// A document for each path. Its body says its version many times, its tag once.
#[derive(Clone, Default)]
struct Documents(Arc<[AtomicU64; PATHS]>);

/// Lets others run, a random number of times.
async fn stumble() {
    for _ in 0..random() % 4 {
        tokio::task::yield_now().await;
    }
}

fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Service<Request<TestBody>> for Documents {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<TestBody>) -> Self::Future {
        let documents = self.clone();
        Box::pin(async move {
            let path: usize = request.uri().path()[1..].parse().unwrap();
            stumble().await;
            let get = request.method() == "GET";
            let version = &documents.0[path];
            let version = if get { version.load(Ordering::SeqCst) } else { version.fetch_add(1, Ordering::SeqCst) + 1 };
            stumble().await;
            let tag = format!("\"{version}\"");
            let known = request.headers().get("if-none-match").is_some_and(|known| *known == *tag);
            let body = if get && !known { text(version) } else { String::new() };
            let mut response = Response::builder().header("etag", tag).header("cache-control", "max-age=60");
            if get && known {
                response = response.status(StatusCode::NOT_MODIFIED);
            }
            if !get {
                response = response.header("x-version", version);
            }
            Ok(response.body(body.into()).unwrap())
        })
    }
}

fn text(version: u64) -> String {
    format!("{version:04} ").repeat(200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_old_is_read_after_a_write() {
    let clock = TestClock::default();
    let layer = CacheLayer::builder().clock(clock.clone()).build();
    let cache = layer.layer(Documents::default());
    let known: Arc<[AtomicU64; PATHS]> = Arc::default();
    let clients = (0..CLIENTS).map(|client| {
        let (cache, known, clock) = (cache.clone(), Arc::clone(&known), clock.clone());
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let path = usize::try_from(random()).unwrap() % PATHS;
                let uri = format!("/{path}");
                stumble().await;
                if client == 0 && round % 50 == 0 {
                    clock.advance(61);
                }
                if random().is_multiple_of(10) {
                    let written = cache.clone().oneshot(request("PUT", &uri, &[])).await.unwrap();
                    let version = written.headers()["x-version"].to_str().unwrap().parse().unwrap();
                    known[path].fetch_max(version, Ordering::SeqCst);
                    continue;
                }
                let least = known[path].load(Ordering::SeqCst);
                let version = read(cache.clone(), &uri).await;
                assert!(version >= least, "{version} after {least} was written");
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    let metrics = layer.handle().metrics();
    for (count, what) in [
        (metrics.hits, "hits"),
        (metrics.misses, "misses"),
        (metrics.coalesced, "coalesced"),
        (metrics.invalidated, "invalidated"),
        (metrics.revalidated, "revalidated"),
    ] {
        assert!(count > 0, "no {what}: {metrics:?}");
    }
}

/// Reads in one of several ways, and checks that tag and bytes belong together.
async fn read<S, B>(cache: S, uri: &str) -> u64
where
    S: Service<Request<TestBody>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let fields: &[(&str, &str)] = match random() % 4 {
        0 => &[("range", "bytes=500-599")],
        1 => &[("cache-control", "no-cache")],
        _ => &[],
    };
    let response = cache.oneshot(request("GET", uri, fields)).await.unwrap();
    let tag = response.headers()["etag"].to_str().unwrap();
    let version: u64 = tag.trim_matches('"').parse().unwrap();
    let part = response.status() == StatusCode::PARTIAL_CONTENT;
    let whole = text(version);
    let expected = if part { &whole[500..600] } else { &whole };
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, expected, "bytes of another version than {version}");
    version
}
