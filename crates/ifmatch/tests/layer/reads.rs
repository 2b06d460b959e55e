//! Reads that run the inner service: tags, conditions, ranges, dates, and long, slow or broken bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use ifmatch::{ConditionalLayer, ResponseBody};
use ifmatch_core::digest::ContentHash;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{ManualClock, Sent, World, ask, request, send};

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1024 * 1024;

#[tokio::test]
async fn the_tag_is_the_hash_of_the_body_for_get_and_head() {
    let service = ConditionalLayer::new().layer(World::with(&[("/a", "hello")]));
    let get = ask(&service, "GET /a", &[]).await;
    let head = ask(&service, "HEAD /a", &[]).await;
    assert_eq!(
        get.tag(),
        ContentHash::of(b"hello").content_tag().to_string()
    );
    assert_eq!(head.tag(), get.tag());
    assert_eq!(
        (
            head.status.as_u16(),
            head.header("content-length").as_deref(),
            head.body.len()
        ),
        (200, Some("5"), 0)
    );
    let matched = ask(&service, "HEAD /a", &[("if-none-match", &get.tag())]).await;
    assert_eq!(
        (matched.status.as_u16(), matched.header("content-length")),
        (304, None)
    );
}

#[tokio::test]
async fn conditions_are_evaluated_only_for_200() {
    let world = World::with(&[("/a", "hello"), ("/moved", "x")]);
    world.answer("GET /moved", 301);
    let service = ConditionalLayer::new().layer(world);
    assert_eq!(
        ask(&service, "GET /none", &[("if-match", "\"x\"")])
            .await
            .status,
        404
    );
    assert_eq!(
        ask(&service, "GET /moved", &[("if-match", "\"x\"")])
            .await
            .status,
        301
    );
    let failed = ask(&service, "GET /a", &[("if-match", "\"x\"")]).await;
    assert_eq!(
        (failed.status.as_u16(), failed.problem().as_str()),
        (412, "precondition-failed")
    );
    let head = ask(&service, "HEAD /a", &[("if-match", "\"x\"")]).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (412, 0));
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", "*")])
            .await
            .status,
        304
    );
}

#[tokio::test]
async fn the_inner_services_own_tag_is_kept() {
    let world = World::with(&[("/strong", "x"), ("/weak", "x"), ("/bad", "x")]);
    world.respond("GET /strong", "etag", "\"v,1\"");
    world.respond("GET /weak", "etag", "W/\"v1\"");
    world.respond("GET /bad", "etag", "v1");
    let service = ConditionalLayer::new().layer(world);
    assert_eq!(ask(&service, "GET /strong", &[]).await.tag(), "\"v,1\"");
    assert_eq!(
        ask(
            &service,
            "GET /strong",
            &[("if-none-match", "\"a\", \"v,1\"")]
        )
        .await
        .status,
        304
    );
    assert_eq!(
        ask(&service, "GET /weak", &[("if-none-match", "\"v1\"")])
            .await
            .status,
        304
    );
    assert_eq!(
        ask(&service, "GET /weak", &[("if-match", "W/\"v1\"")])
            .await
            .status,
        412
    );
    assert_eq!(
        ask(&service, "GET /bad", &[]).await.tag(),
        ContentHash::of(b"x").content_tag().to_string()
    );
}

#[tokio::test]
async fn the_inner_service_sees_no_conditions() {
    let world = World::with(&[("/a", "x")]);
    let service = ConditionalLayer::new().layer(world.clone());
    let fields = [
        ("if-none-match", "\"x\""),
        ("if-modified-since", "x"),
        ("if-match", "*"),
        ("if-unmodified-since", "x"),
        ("if-range", "x"),
        ("accept", "text/plain"),
    ];
    ask(&service, "GET /a", &fields).await;
    let names: Vec<_> = world.seen()[0]
        .headers
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["accept"]);
}

#[tokio::test]
async fn a_date_is_sent_once_its_second_has_begun_and_grows_with_each_version() {
    let clock = ManualClock::default();
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "last-modified", "Fri, 01 Jan 2100 00:00:00 GMT");
    let service = ConditionalLayer::builder()
        .clock(clock.clone())
        .build()
        .layer(world.clone());
    assert_eq!(
        ask(&service, "GET /a", &[]).await.header("last-modified"),
        None
    );
    clock.advance(SECOND / 2);
    let first = ask(&service, "GET /a", &[])
        .await
        .header("last-modified")
        .unwrap();
    assert_eq!(
        ask(&service, "GET /a", &[("if-modified-since", &first)])
            .await
            .status,
        304
    );
    world.set("/a", "two");
    let changed = ask(&service, "GET /a", &[("if-modified-since", &first)]).await;
    assert_eq!(
        (changed.status.as_u16(), changed.header("last-modified")),
        (200, None)
    );
    clock.advance(SECOND);
    assert_ne!(
        ask(&service, "GET /a", &[])
            .await
            .header("last-modified")
            .unwrap(),
        first
    );
}

#[tokio::test]
async fn ranges_are_cut_out_of_a_hashed_body() {
    let service = ConditionalLayer::new().layer(World::with(&[("/a", "0123456789")]));
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let part = ask(&service, "GET /a", &[("range", "bytes=2-4")]).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"234"[..]));
    assert_eq!(
        part.header("content-range").as_deref(),
        Some("bytes 2-4/10")
    );
    assert_eq!(
        (part.tag(), part.header("content-length").as_deref()),
        (tag.clone(), Some("3"))
    );
    let parts = ask(&service, "GET /a", &[("range", "bytes=0-0,-2")]).await;
    assert!(
        parts
            .header("content-type")
            .unwrap()
            .starts_with("multipart/byteranges")
    );
    assert_eq!(
        parts.header("content-length"),
        Some(parts.body.len().to_string())
    );
    assert!(String::from_utf8_lossy(&parts.body).contains("\r\n\r\n89\r\n--"));
    let beyond = ask(&service, "GET /a", &[("range", "bytes=10-")]).await;
    assert_eq!(
        (
            beyond.status.as_u16(),
            beyond.header("content-range").as_deref()
        ),
        (416, Some("bytes */10"))
    );
    for (if_range, status) in [
        (tag.as_str(), 206),
        ("\"other\"", 200),
        (&format!("W/{tag}"), 200),
        ("x", 200),
    ] {
        let fields = [("range", "bytes=2-4"), ("if-range", if_range)];
        assert_eq!(
            ask(&service, "GET /a", &fields).await.status.as_u16(),
            status,
            "{if_range}"
        );
    }
    let both = [("range", "bytes=10-"), ("if-none-match", tag.as_str())];
    assert_eq!(ask(&service, "GET /a", &both).await.status, 304);
    assert_eq!(
        ask(&service, "HEAD /a", &[("range", "bytes=2-4")])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_part_has_no_digest_of_the_whole() {
    let digests = ["content-digest", "content-md5"];
    let inner = service_fn(move |_: Request<Sent>| async move {
        let mut response = Response::new(Full::<Bytes>::from("0123"));
        for name in digests {
            response.headers_mut().insert(name, "x".parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let service = ConditionalLayer::new().layer(inner);
    let whole = ask(&service, "GET /a", &[]).await;
    let part = ask(&service, "GET /a", &[("range", "bytes=0-0")]).await;
    assert_eq!(part.status.as_u16(), 206);
    for name in digests {
        assert!(
            whole.header(name).is_some() && part.header(name).is_none(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_part_from_the_inner_service_is_passed_on_only_if_its_conditions_hold() {
    for tag in [None, Some("\"v1\"")] {
        let inner = service_fn(move |request: Request<Sent>| async move {
            let ranged = request.headers().contains_key("range");
            let mut response =
                Response::new(Full::<Bytes>::from(if ranged { "0" } else { "0123" }));
            if ranged {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                response
                    .headers_mut()
                    .insert("content-range", "bytes 0-0/4".parse().unwrap());
            }
            if let Some(tag) = tag {
                response.headers_mut().insert("etag", tag.parse().unwrap());
            }
            Ok::<_, Infallible>(response)
        });
        let service = ConditionalLayer::new().layer(inner);
        let known = ask(&service, "GET /a", &[]).await.tag();
        let range = ("range", "bytes=0-0");
        for (name, value, status) in [
            ("accept", "*/*", 206),
            ("if-match", known.as_str(), 206),
            ("if-match", "\"other\"", 412),
            ("if-none-match", known.as_str(), 304),
            ("if-none-match", "\"other\"", 206),
            ("if-range", known.as_str(), 206),
            ("if-range", "\"other\"", 200),
        ] {
            let reply = ask(&service, "GET /a", &[range, (name, value)]).await;
            assert_eq!(
                reply.status.as_u16(),
                status,
                "{name}: {value}, own tag {tag:?}"
            );
            if status == 206 {
                assert_eq!(&reply.body[..], b"0");
            }
        }
    }
}

/// A body of equal chunks that counts the chunks taken.
struct Chunks {
    chunks: u64,
    taken: Arc<AtomicU64>,
}

const CHUNK: &[u8] = &[7; 64 * 1024];

impl Body for Chunks {
    type Data = &'static [u8];
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<&'static [u8]>, Infallible>>> {
        if self.taken.fetch_add(1, Ordering::SeqCst) >= self.chunks {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(CHUNK))))
    }
}

async fn chunked(
    chunks: u64,
    fields: &[(&str, &str)],
) -> (Response<ResponseBody<Chunks>>, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let inner = {
        let taken = Arc::clone(&taken);
        service_fn(move |_: Request<Sent>| {
            let body = Chunks {
                chunks,
                taken: Arc::clone(&taken),
            };
            async move { Ok::<_, Infallible>(Response::new(body)) }
        })
    };
    let service = ConditionalLayer::builder()
        .hash_limit(MIB)
        .build()
        .layer(inner);
    (
        service
            .oneshot(request("GET /a", fields, ""))
            .await
            .unwrap(),
        taken,
    )
}

#[tokio::test]
async fn a_gibibyte_has_the_tag_of_its_revision_and_is_never_buffered_beyond_the_limit() {
    let chunks = 1024 * MIB / CHUNK.len() as u64;
    let (response, taken) = chunked(chunks, &[]).await;
    assert!(taken.load(Ordering::SeqCst) <= MIB / CHUNK.len() as u64 + 1);
    assert!(
        response.headers()["etag"]
            .to_str()
            .unwrap()
            .starts_with("\"r")
    );
    let mut body = response.into_body();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert_eq!(data.first(), Some(&7));
        len += data.len() as u64;
    }
    assert_eq!(len, 1024 * MIB);
}

#[tokio::test]
async fn a_body_beyond_the_hash_limit_fails_if_match_and_passes_if_none_match() {
    let chunks = 2 * MIB / CHUNK.len() as u64;
    assert_eq!(
        chunked(chunks, &[("if-match", "\"x\"")]).await.0.status(),
        412
    );
    assert_eq!(
        chunked(chunks, &[("if-none-match", "\"x\"")])
            .await
            .0
            .status(),
        200
    );
}

#[tokio::test]
async fn a_body_as_long_as_the_hash_limit_has_the_tag_of_its_content() {
    let chunks = MIB / CHUNK.len() as u64;
    let (response, _) = chunked(chunks, &[]).await;
    let content = CHUNK.repeat(chunks.try_into().unwrap());
    assert_eq!(
        response.headers()["etag"],
        ContentHash::of(&content).content_tag().to_header()
    );
}

type Frames = Vec<Result<Frame<Bytes>, &'static str>>;

/// Reads a body of these frames, which then ends or stays open.
async fn frames(
    kind: Option<&'static str>,
    frames: fn() -> Frames,
    stays_open: bool,
) -> Response<ResponseBody<impl Body<Data = Bytes, Error = &'static str>>> {
    let inner = service_fn(move |_: Request<Sent>| async move {
        let frames = stream::iter(frames());
        let body = if stays_open {
            frames.chain(stream::pending()).boxed()
        } else {
            frames.boxed()
        };
        let mut response = Response::new(StreamBody::new(body));
        if let Some(kind) = kind {
            response
                .headers_mut()
                .insert("content-type", kind.parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let service = ConditionalLayer::new().layer(inner);
    service.oneshot(request("GET /a", &[], "")).await.unwrap()
}

#[tokio::test]
async fn a_truncated_body_is_passed_on_without_a_tag() {
    let response = frames(
        None,
        || vec![Ok(Frame::data(Bytes::from("half"))), Err("broken")],
        false,
    )
    .await;
    assert!(!response.headers().contains_key("etag"));
    let mut body = response.into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "half"
    );
    assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn trailers_are_kept() {
    let with_trailers = || {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        vec![
            Ok(Frame::data(Bytes::from("a"))),
            Ok(Frame::data(Bytes::from("b"))),
            Ok(Frame::trailers(trailers)),
        ]
    };
    let response = frames(None, with_trailers, false).await;
    assert_eq!(
        response.headers()["etag"],
        ContentHash::of(b"ab").content_tag().to_header()
    );
    let read = response.into_body().collect().await.unwrap();
    assert_eq!(read.trailers().unwrap()["x-sum"], "7");
    assert_eq!(read.to_bytes(), "ab");
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_is_passed_on_after_a_second_at_most() {
    let one_event = || vec![Ok(Frame::data(Bytes::from("event")))];
    for (kind, held) in [(Some("text/event-stream"), Duration::ZERO), (None, SECOND)] {
        let start = tokio::time::Instant::now();
        let response = frames(kind, one_event, true).await;
        // The runtime's paused clock moves only when all tasks wait.
        assert_eq!(start.elapsed().as_secs(), held.as_secs());
        assert!(!response.headers().contains_key("etag"));
        let mut body = response.into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "event"
        );
        assert!(body.frame().now_or_never().is_none());
    }
}

#[tokio::test]
async fn an_empty_body_has_a_tag() {
    let service = ConditionalLayer::new().layer(World::with(&[("/a", "")]));
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(tag, ContentHash::of(b"").content_tag().to_string());
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "x"))
            .await
            .status,
        204
    );
}
