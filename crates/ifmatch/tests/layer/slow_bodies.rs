//! Request bodies that arrive slowly: no other writer waits for the client, and a long upload isn't cut off.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use ifmatch::{ConditionalLayer, Permit, RequestBody};
use tokio::sync::{Barrier, mpsc};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{ManualClock, Sent, World, builder, ended, request, send, settle};

const SECOND: Duration = Duration::from_secs(1);

type Slow = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// A body, and the sender of its chunks. It ends when the sender is dropped.
fn slow_body() -> (mpsc::UnboundedSender<Bytes>, Slow) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let chunks = futures_util::stream::unfold(
        receiver,
        |mut receiver: mpsc::UnboundedReceiver<Bytes>| async move {
            Some((Ok(Frame::data(receiver.recv().await?)), receiver))
        },
    );
    (sender, StreamBody::new(chunks).boxed_unsync())
}

fn put(body: Slow) -> Request<Slow> {
    Request::put("/a").body(body).unwrap()
}

#[tokio::test]
async fn a_slow_client_keeps_no_other_writer_waiting() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .lock_timeout(Duration::ZERO)
        .build()
        .layer(world.clone());
    let (sender, body) = slow_body();
    let slow = tokio::spawn(service.clone().oneshot(put(body)));
    sender.send(Bytes::from("slow")).unwrap();
    settle().await;
    assert_eq!(
        send(&service, request("PUT /a", &[], "fast")).await.status,
        204
    );
    drop(sender);
    assert_eq!(ended("slow", slow).await.unwrap().status(), 204);
    assert_eq!(world.get("/a").as_deref(), Some("slow"));
}

#[tokio::test]
async fn a_body_that_stops_arriving_changes_nothing() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let (sender, body) = slow_body();
    let stalled = tokio::spawn(service.clone().oneshot(put(body)));
    for _ in 0..3 {
        sender.send(Bytes::from("more")).unwrap();
        settle().await;
        clock.advance(SECOND * 29);
        settle().await;
        assert!(
            !stalled.is_finished(),
            "it was cut off while its bytes arrived"
        );
    }
    clock.advance(SECOND * 2);
    assert_eq!(
        stalled.await.unwrap().unwrap().status(),
        StatusCode::REQUEST_TIMEOUT
    );
    assert_eq!(
        (world.runs(&Method::PUT), world.get("/a").as_deref()),
        (0, Some("one"))
    );
}

/// A handler that reads the body to its end, and reports the length and the fencing token.
async fn upload(request: Request<RequestBody<Slow>>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::from("stored")));
    }
    let token = request
        .extensions()
        .get::<Permit>()
        .map(Permit::fencing_token);
    let content = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::from(format!(
        "{} {}",
        content.len(),
        token.unwrap_or_default()
    ))))
}

#[tokio::test]
async fn a_long_body_keeps_its_permit_while_it_arrives() {
    let (builder, clock, _) = builder();
    let service = builder
        .request_buffer_limit(1_024)
        .lock_timeout(Duration::ZERO)
        .build()
        .layer(service_fn(upload));
    let (sender, body) = slow_body();
    let long = tokio::spawn(service.clone().oneshot(put(body)));
    // Ten times the write timeout, in steps shorter than the time in which a renewal is due.
    for step in 0..100 {
        sender.send(Bytes::from(vec![0; 64 * 1_024])).unwrap();
        settle().await;
        let other = service
            .clone()
            .oneshot(
                Request::put("/a")
                    .body(Full::from("x").boxed_unsync())
                    .unwrap(),
            )
            .await;
        assert_eq!(
            other.unwrap().status(),
            409,
            "another writer got the permit at step {step}"
        );
        clock.advance(SECOND * 3);
        settle().await;
        assert!(!long.is_finished(), "cut off at step {step}");
    }
    drop(sender);
    let response = long.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(
        text.starts_with(format!("{} ", 100 * 64 * 1_024).as_bytes()),
        "{text:?}"
    );
    let next = service
        .oneshot(
            Request::put("/a")
                .body(Full::from("x").boxed_unsync())
                .unwrap(),
        )
        .await
        .unwrap();
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn a_trickle_does_not_keep_the_permit() {
    let (builder, clock, _) = builder();
    let service = builder
        .request_buffer_limit(0)
        .build()
        .layer(service_fn(upload));
    let (sender, body) = slow_body();
    let trickle = tokio::spawn(service.clone().oneshot(put(body)));
    for _ in 0..10 {
        // The handler may have been cancelled already.
        let _ = sender.send(Bytes::from("x"));
        settle().await;
        clock.advance(SECOND * 3);
        settle().await;
    }
    let response = trickle
        .now_or_never()
        .expect("it was cancelled")
        .unwrap()
        .unwrap();
    assert_eq!(response.status(), 503);
}

#[tokio::test]
async fn an_upload_that_another_process_has_overtaken_is_not_acknowledged() {
    let (builder, clock, register) = builder();
    let service = builder.build().layer(service_fn(upload));
    // The first process's clock stops, so it renews nothing.
    let stopped = ConditionalLayer::builder()
        .register(register)
        .clock(ManualClock::default())
        .request_buffer_limit(0)
        .build();
    let (sender, body) = slow_body();
    let late = tokio::spawn(stopped.layer(service_fn(upload)).oneshot(put(body)));
    sender.send(Bytes::from(vec![0; 64 * 1_024])).unwrap();
    settle().await;
    clock.advance(SECOND * 31);
    let next = Request::put("/a")
        .body(Full::from("x").boxed_unsync())
        .unwrap();
    assert_eq!(service.oneshot(next).await.unwrap().status(), 200);
    drop(sender);
    assert_eq!(late.await.unwrap().unwrap().status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_without_a_condition_do_not_queue_up() {
    const POSTS: usize = 150;
    let (builder, _, _) = builder();
    let all = Arc::new(Barrier::new(POSTS));
    let inner = service_fn(move |request: Request<Sent>| {
        let all = Arc::clone(&all);
        async move {
            if request.method() == Method::POST {
                all.wait().await;
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("answer")))
        }
    });
    let service = builder.build().layer(inner);
    let posts: Vec<_> = (0..POSTS)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                send(&service, request("POST /login", &[], "{}"))
                    .await
                    .status
            })
        })
        .collect();
    for post in posts {
        assert_eq!(ended("a post", post).await, 200);
    }
}

#[tokio::test]
async fn a_post_with_a_condition_is_guarded() {
    for (name, value) in [
        ("if-match", "\"stale\""),
        ("if-none-match", "*"),
        ("if-unmodified-since", "Wed, 31 Dec 1969 23:59:59 GMT"),
    ] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        assert_eq!(
            send(&service, request("POST /a", &[(name, value)], "two"))
                .await
                .status,
            412,
            "{name}"
        );
        assert_eq!(world.runs(&Method::POST), 0);
    }
}

type Broken = http_body_util::combinators::UnsyncBoxBody<Bytes, &'static str>;

/// A handler that stores whole bodies only.
async fn store(request: Request<RequestBody<Broken>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (is_read, status) = match (
        request.method() == Method::GET,
        request.into_body().collect().await,
    ) {
        (true, _) => (true, StatusCode::OK),
        (false, Ok(_)) => (false, StatusCode::NO_CONTENT),
        (false, Err(_)) => (false, StatusCode::BAD_REQUEST),
    };
    let mut response = Response::new(Full::from(if is_read { "stored" } else { "" }));
    *response.status_mut() = status;
    Ok(response)
}

/// A client leaves in the middle of a conditional PUT, before or after its permit was granted. The clock stands still: if the permit
/// weren't given back, the next writer would wait for ever.
#[tokio::test]
async fn a_client_that_leaves_locks_nothing() {
    for limit in [0, 1_024, 1 << 20] {
        let (builder, _, _) = builder();
        let service = builder
            .request_buffer_limit(limit)
            .build()
            .layer(service_fn(store));
        let send = |request: http::request::Builder,
                    frames: Vec<Result<Frame<Bytes>, &'static str>>| {
            let body: Broken = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            service.clone().oneshot(request.body(body).unwrap())
        };
        let read = send(Request::get("/a"), Vec::new()).await.unwrap();
        let tag = read.headers()["etag"].clone();
        let data = || Ok(Frame::data(Bytes::from(vec![b'x'; 64 * 1_024])));
        let put = || Request::put("/a").header("if-match", &tag);
        let broken = send(put(), vec![data(), Err("the client has left")]);
        assert_eq!(
            ended("the broken upload", tokio::spawn(broken))
                .await
                .unwrap()
                .status(),
            400,
            "{limit}"
        );
        let next = ended("the next writer", tokio::spawn(send(put(), vec![data()])))
            .await
            .unwrap();
        assert_eq!(next.status(), 204, "{limit}");
    }
}

/// A handler that takes what has arrived for the whole would store it.
#[tokio::test]
async fn a_write_whose_body_breaks_off_does_not_run_if_that_is_asked_for() {
    let (builder, _, _) = builder();
    let service = builder
        .refuse_broken_bodies()
        .build()
        .layer(service_fn(never));
    let frames = [
        Ok(Frame::data(Bytes::from("part"))),
        Err("the client has left"),
    ];
    let body: Broken = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let refused = service
        .oneshot(Request::put("/a").body(body).unwrap())
        .await
        .unwrap();
    assert_eq!(refused.status(), 400);
}

async fn never(_: Request<RequestBody<Broken>>) -> Result<Response<Full<Bytes>>, Infallible> {
    panic!("the handler runs")
}
