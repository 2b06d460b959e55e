//! The memory of the cache while a thousand slow clients read large bodies.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, StreamBody};
use ifmatch_cache::{Cache, CacheLayer, ResponseBody};
use tower::{Layer, Service, ServiceExt, service_fn};

const CLIENTS: usize = 1_000;
const CAPACITY: u64 = 32 << 20;
/// Length of a piece that the origin sends, and number of pieces.
const PIECE: usize = 32 << 10;
const PIECES: usize = 32;

/// Memory of one slow client: the window of a body that is still arriving, and the pieces being sent.
const PER_CLIENT: u64 = 192 << 10;

type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;
type Answer = Response<ResponseBody<BoxBody>>;

/// Returns a body of 1 MiB, which takes memory only while it is sent.
fn body() -> BoxBody {
    let piece = || Ok(Frame::data(Bytes::from(vec![b'x'; PIECE])));
    Box::pin(StreamBody::new(stream::iter(
        std::iter::repeat_with(piece).take(PIECES),
    )))
}

async fn origin(_: Request<Empty<Bytes>>) -> Result<Response<BoxBody>, Infallible> {
    let response = Response::builder()
        .header("cache-control", "max-age=600")
        .header("content-length", PIECE * PIECES);
    Ok(response.body(body()).expect("valid fields"))
}

async fn get<S>(cache: &Cache<S>, path: usize) -> Answer
where
    S: Service<
            Request<Empty<Bytes>>,
            Response = Response<BoxBody>,
            Error = Infallible,
            Future: Send,
        >,
    S: Clone + Send + 'static,
{
    let request = Request::get(format!("/{path}"))
        .header("host", "a.example")
        .body(Empty::new())
        .expect("a request");
    cache.clone().oneshot(request).await.expect("a response")
}

/// Reads the first piece.
async fn begin(answer: &mut Answer) {
    let frame = answer.frame().await.expect("a piece").expect("no error");
    assert!(frame.into_data().is_ok_and(|data| !data.is_empty()));
}

/// Lets the other tasks do what they can.
async fn settle() {
    for _ in 0..4 * PIECES {
        tokio::task::yield_now().await;
    }
}

/// Half of the clients read bodies that are stored meanwhile, and the others read stored ones. All of them are evicted.
async fn read_slowly() {
    let cache = CacheLayer::builder()
        .capacity(CAPACITY)
        .entry_limit(4 << 20)
        .build()
        .layer(service_fn(origin));
    let mut slow = Vec::new();
    for path in 0..CLIENTS {
        let mut first = get(&cache, path).await;
        if path % 2 == 0 {
            begin(&mut first).await;
            settle().await;
            slow.push(first);
        } else {
            assert_eq!(
                first
                    .into_body()
                    .collect()
                    .await
                    .expect("a body")
                    .to_bytes()
                    .len(),
                PIECE * PIECES
            );
            let mut hit = get(&cache, path).await;
            assert!(
                hit.headers()["cache-status"]
                    .to_str()
                    .is_ok_and(|status| status.contains("hit"))
            );
            begin(&mut hit).await;
            slow.push(hit);
        }
    }
    // They are slow, not gone.
    poll_fn(|cx| {
        for answer in &mut slow {
            let _ = Pin::new(answer.body_mut()).poll_frame(cx);
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn slow_clients_of_large_bodies_keep_a_bounded_share_of_the_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let used = measure(|| runtime.block_on(read_slowly())).bytes_max;
    // The stored bodies, those still arriving, and those kept after an eviction: see docs/proxy/caching.md.
    let shares = CAPACITY + CAPACITY * 5 / 16 + CAPACITY * 5 / 32;
    let most = shares + CLIENTS as u64 * PER_CLIENT;
    assert!(used <= most, "{} MiB of {} MiB", used >> 20, most >> 20);
    assert!(used >= CAPACITY, "the memory of the cache is counted");
}
