//! Overlapping requests: an observation or a write must not count for requests that began earlier.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use ifmatch::ConditionalLayer;
use ifmatch_core::date::HttpDate;
use ifmatch_register::faulty::FaultyRegister;
use ifmatch_runtime::Clock;
use tokio::sync::Barrier;
use tower::{Layer, service_fn};

use crate::support::{ManualClock, Sent, World, ask, builder, request, send};

#[tokio::test]
async fn a_read_is_not_recorded_if_another_write_has_changed_its_resource() {
    for end in ["x-none", "x-end-after"] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/list", "old")]);
        world.respond("POST /items", "location", "/list");
        let service = builder.authoritative().build().layer(world.clone());
        let reading = tokio::spawn({
            let service = service.clone();
            async move { ask(&service, "GET /list", &[("x-get-hold-after", "reader")]).await }
        });
        world.reached("reader").await;
        world.set("/list", "new");
        send(&service, request("POST /items", &[(end, "500")], "item")).await;
        world.release("reader");
        let old = reading.await.unwrap();
        assert_eq!(old.body, "old");
        let reply = ask(&service, "GET /list", &[("if-none-match", &old.tag())]).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body[..]),
            (200, &b"new"[..]),
            "{end}"
        );
    }
}

#[tokio::test]
async fn an_absence_seen_by_one_reader_does_not_allow_creation() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    world.answer("GET /a", 404);
    assert_eq!(ask(&service, "GET /a", &[]).await.status, 404);
    let refused = send(
        &service,
        request("PUT /a", &[("if-match", &tag), ("x-end", "403")], "x"),
    )
    .await;
    assert_eq!(refused.status, 412);
    let create = [("if-none-match", "*"), ("x-end", "403")];
    assert_eq!(
        send(&service, request("PUT /a", &create, "x")).await.status,
        403
    );
    world.answer("GET /a", 200);
    let second = send(
        &service,
        request("PUT /a", &[("if-none-match", "*")], "two"),
    )
    .await;
    assert_eq!(
        (second.status.as_u16(), world.get("/a").as_deref()),
        (412, Some("one"))
    );
}

#[tokio::test]
async fn a_part_never_carries_a_date_that_a_later_state_may_share() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let date =
        HttpDate::from_unix(i64::try_from(clock.now().micros() / 1_000_000).unwrap()).to_header();
    world.respond("GET /a", "last-modified", date.to_str().unwrap());
    world.answer("GET /a", 206);
    let service = builder.build().layer(world);
    let part = [("range", "bytes=0-2")];
    assert_eq!(
        ask(&service, "GET /a", &part).await.header("last-modified"),
        None
    );
    clock.advance(Duration::from_secs(1));
    assert!(
        ask(&service, "GET /a", &part)
            .await
            .header("last-modified")
            .is_some()
    );
}

/// The swap takes longer than the write timeout.
#[tokio::test]
async fn a_handler_does_not_start_with_an_expired_permit() {
    let clock = ManualClock::default();
    let world = World::with(&[("/a", "one")]);
    let (register, late) = (FaultyRegister::default(), clock.clone());
    register.before_swap("", async move { late.advance(Duration::from_secs(31)) });
    let layer = ConditionalLayer::builder()
        .clock(clock)
        .register(register)
        .build();
    let reply = send(&layer.layer(world.clone()), request("PUT /a", &[], "late")).await;
    assert_eq!((reply.status.as_u16(), world.runs(&Method::PUT)), (503, 0));
}

#[tokio::test]
async fn a_tag_kept_by_compression_inside_is_not_shared_by_codings() {
    let (builder, _, _) = builder();
    let inner = service_fn(|request: Request<Sent>| async move {
        let coded = request.headers().contains_key("accept-encoding");
        let response = Response::builder()
            .header("etag", "\"v1\"")
            .header("vary", "accept-encoding");
        let response = if coded {
            response.header("content-encoding", "gzip")
        } else {
            response
        };
        let body = if coded { "coded" } else { "plain" };
        Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
    });
    let service = builder.build().layer(inner);
    let plain = ask(&service, "GET /a", &[]).await.tag();
    let coded = ask(&service, "GET /a", &[("accept-encoding", "gzip")])
        .await
        .tag();
    assert_eq!(plain, "\"v1\"");
    assert_ne!(plain, coded);
}

#[tokio::test]
async fn an_accepted_post_does_not_block_the_next() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/jobs", "")]);
    world.answer("POST /jobs", 202);
    let service = builder.lock_timeout(Duration::ZERO).build().layer(world);
    for _ in 0..2 {
        assert_eq!(
            send(&service, request("POST /jobs", &[], "job"))
                .await
                .status,
            202
        );
    }
}

#[tokio::test]
async fn unguarded_writes_run_concurrently() {
    let (builder, _, _) = builder();
    let both = Arc::new(Barrier::new(2));
    let inner = service_fn(move |request: Request<Sent>| {
        let both = Arc::clone(&both);
        async move {
            if request.method() == Method::POST {
                both.wait().await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("answer"))))
        }
    });
    let service = builder
        .guard_where(|head| head.method != Method::POST)
        .build()
        .layer(inner);
    let query = || send(&service, request("POST /graphql", &[], "{}"));
    let both = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(query(), query())
    })
    .await;
    let (first, second) = both.expect("each waits for the other: they run concurrently");
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
}

#[tokio::test]
async fn an_unguarded_write_invalidates_the_resources_it_changed() {
    for panics in [true, false] {
        let (builder, _, _) = builder();
        let inner = World::with(&[("/a", "one"), ("/list", "one")]);
        let world = inner.clone();
        let inner = service_fn(move |request: Request<Sent>| {
            let world = world.clone();
            async move {
                let path = request.uri().path().to_owned();
                if request.method() != Method::POST {
                    return Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
                        world.get(&path).unwrap(),
                    )));
                }
                world.set("/a", "two");
                world.set("/list", "two");
                assert!(!panics, "requested panic");
                Ok(Response::builder()
                    .header("content-location", "/list")
                    .body(Full::default())
                    .unwrap())
            }
        });
        let guarded = |head: &http::request::Parts| head.method != Method::POST;
        let service = builder
            .authoritative()
            .guard_where(guarded)
            .build()
            .layer(inner);
        let tag = ask(&service, "GET /a", &[]).await.tag();
        assert_eq!(ask(&service, "GET /list", &[]).await.tag(), tag);
        let reply = send(&service, request("POST /a", &[], "")).await;
        assert_eq!(reply.status.as_u16(), if panics { 500 } else { 200 });
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", &tag)])
                .await
                .status,
            200,
            "panics: {panics}"
        );
        if !panics {
            assert_eq!(
                ask(&service, "GET /list", &[("if-none-match", &tag)])
                    .await
                    .status,
                200
            );
        }
    }
}
