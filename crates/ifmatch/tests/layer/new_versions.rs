//! The response to a write names the version that it has made, and never one that holds another writer's bytes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch::{ConditionalLayer, NewVersion};
use ifmatch_core::EntityTag;
use tower::{Layer, service_fn};

use crate::support::{
    ManualClock, Reply, Sent, World, ask, builder, durable, ended, request, send, settle,
    with_authority,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn each_write_answers_with_the_tag_that_a_get_gives() {
    for authoritative in [true, false] {
        let (builder, _, _) = builder();
        let world = World::default();
        let builder = with_authority(builder, authoritative);
        let service = builder.build().layer(world.clone());
        let created = send(
            &service,
            request("PUT /a", &[("if-none-match", "*")], "one"),
        )
        .await;
        assert_eq!(created.status, 201);
        let mut tag = created.tag();
        for (method, text) in [("PUT", "two"), ("PATCH", "three"), ("POST", "four")] {
            let written = send(
                &service,
                request(&format!("{method} /a"), &[("if-match", &tag)], text),
            )
            .await;
            assert_eq!(written.status, 204, "{method}");
            assert_ne!(written.tag(), tag);
            tag = written.tag();
            assert_eq!(ask(&service, "GET /a", &[]).await.tag(), tag, "{method}");
        }
        let deleted = send(&service, request("DELETE /a", &[("if-match", &tag)], "")).await;
        assert_eq!(
            (deleted.status.as_u16(), deleted.header("etag")),
            (204, None)
        );
    }
}

#[tokio::test]
async fn a_chain_of_saves_needs_no_get_by_the_client() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "zero")]);
    let service = builder.authoritative().build().layer(world.clone());
    let mut tag = ask(&service, "GET /a", &[]).await.tag();
    for number in 1..5 {
        tag = send(
            &service,
            request("PUT /a", &[("if-match", &tag)], &number.to_string()),
        )
        .await
        .tag();
        // One GET by the client at first, and one by the layer after each write: none before it.
        assert_eq!(world.runs(&Method::GET), 1 + number);
    }
}

#[tokio::test]
async fn a_delete_that_leaves_something_answers_with_its_tag() {
    let (builder, _, _) = builder();
    let inner = service_fn(|_: Request<Sent>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("default")))
    });
    let service = builder.build().layer(inner);
    let reset = send(&service, request("DELETE /settings", &[], "")).await;
    assert_eq!(reset.tag(), ask(&service, "GET /settings", &[]).await.tag());
}

#[tokio::test]
async fn without_the_probe_no_get_is_sent_and_no_tag_is_given() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.get_after_writes(false).build().layer(world.clone());
    assert_eq!(
        send(&service, request("PUT /a", &[], "two"))
            .await
            .header("etag"),
        None
    );
    assert_eq!(world.runs(&Method::GET), 0);
}

#[tokio::test]
async fn a_probe_that_fails_does_not_hide_the_success() {
    for status in [401, 404, 500, 503] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        world.answer("GET /a", status);
        let service = builder.build().layer(world.clone());
        let written = send(&service, request("PUT /a", &[], "two")).await;
        assert_eq!(
            (written.status.as_u16(), written.header("etag")),
            (204, None),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_created_resource_elsewhere_keeps_its_validators() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/list", "one")]);
    world.respond("POST /list", "location", "/list/7");
    world.answer("POST /list", 201);
    let service = builder.guard_where(|_| true).build().layer(world.clone());
    assert_eq!(
        send(&service, request("POST /list", &[], "item"))
            .await
            .header("etag"),
        None
    );
    world.respond("POST /list", "etag", "\"7\"");
    assert_eq!(
        send(&service, request("POST /list", &[], "item"))
            .await
            .tag(),
        "\"7\""
    );
    assert_eq!(world.runs(&Method::GET), 0);
}

/// Writes to a service that stores what it is sent in upper case and states this version, and reads it. Returns both responses.
async fn stating(version: NewVersion) -> (Reply, Reply) {
    let (builder, _, _) = builder();
    let text = Arc::new(Mutex::new(Bytes::from("OLD")));
    let inner = service_fn(move |request: Request<Sent>| {
        let (text, version) = (Arc::clone(&text), version.clone());
        async move {
            if request.method() == Method::GET {
                return Ok::<_, Infallible>(Response::new(Full::new(text.lock().unwrap().clone())));
            }
            let sent = request.into_body().collect().await?.to_bytes();
            let stored = Bytes::from(sent.to_ascii_uppercase());
            text.lock().unwrap().clone_from(&stored);
            let mut response = Response::new(Full::new(stored));
            response.extensions_mut().insert(version);
            Ok(response)
        }
    });
    let service = builder.build().layer(inner);
    let written = send(&service, request("PUT /a", &[], "new")).await;
    (written, ask(&service, "GET /a", &[]).await)
}

#[tokio::test]
async fn the_handler_may_state_its_version() {
    let (written, read) = stating(NewVersion::Body).await;
    assert_eq!(
        (written.tag(), &written.body[..]),
        (read.tag(), &b"NEW"[..])
    );
    let (written, read) = stating(NewVersion::Content(Bytes::from("NEW"))).await;
    assert_eq!(written.tag(), read.tag());
    let (written, _) = stating(NewVersion::Tag(EntityTag::strong("v7").unwrap())).await;
    assert_eq!(written.tag(), "\"v7\"");
    assert_eq!(stating(NewVersion::Gone).await.0.header("etag"), None);
}

#[tokio::test]
async fn no_writer_runs_between_a_write_and_the_probe_of_its_version() {
    let (clock, register) = (ManualClock::default(), durable());
    let world = World::with(&[("/a", "one")]);
    let process = || {
        ConditionalLayer::builder()
            .register(register.clone())
            .clock(clock.clone())
            .build()
    };
    let (here, there) = (
        process().layer(world.clone()),
        process().layer(world.clone()),
    );
    let first = tokio::spawn({
        let here = here.clone();
        async move {
            send(
                &here,
                request("PUT /a", &[("x-get-hold-before", "probe")], "first"),
            )
            .await
        }
    });
    world.reached("probe").await;
    let others = [here.clone(), there.clone()].map(|service| {
        tokio::spawn(async move { send(&service, request("PUT /a", &[], "other")).await })
    });
    settle().await;
    assert_eq!(
        world.get("/a").as_deref(),
        Some("first"),
        "another writer ran before the probe"
    );
    world.release("probe");
    let tag = first.await.unwrap().tag();
    // The others wait by polling, as writers of other processes do.
    for _ in 0..400 {
        clock.advance(SECOND / 20);
        settle().await;
    }
    for other in others {
        assert!(other.is_finished(), "another writer still waits");
        assert_ne!(other.await.unwrap().tag(), tag);
    }
    world.set("/a", "first");
    assert_eq!(ask(&here, "GET /a", &[]).await.tag(), tag);
}

#[tokio::test]
async fn a_permit_that_ends_during_the_probe_gives_no_tag() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let first = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-get-hold-before", "probe")], "first"),
            )
            .await
        }
    });
    world.reached("probe").await;
    // The handler's share of the permit has ended: the probe is given up, and the write is acknowledged without a tag.
    clock.advance(SECOND * 28);
    let written = first.await.unwrap();
    assert_eq!(
        (written.status.as_u16(), written.header("etag")),
        (204, None)
    );
    assert_eq!(
        send(&service, request("PUT /a", &[], "second"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn a_permit_taken_by_another_process_during_the_probe_gives_no_tag() {
    let (builder, clock, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .lock_timeout(SECOND * 60)
        .build()
        .layer(world.clone());
    // The clock of the first process stops.
    let stopped = ConditionalLayer::builder()
        .register(register)
        .clock(ManualClock::default())
        .build();
    let first = tokio::spawn({
        let stopped = stopped.layer(world.clone());
        async move {
            send(
                &stopped,
                request("PUT /a", &[("x-get-hold-before", "probe")], "first"),
            )
            .await
        }
    });
    world.reached("probe").await;
    clock.advance(SECOND * 31);
    assert_eq!(
        send(&service, request("PUT /a", &[], "second"))
            .await
            .status,
        204
    );
    world.release("probe");
    let late = first.await.unwrap();
    assert_eq!(
        (late.status.as_u16(), late.problem().as_str()),
        (503, "outcome-unknown")
    );
    assert_eq!(late.header("etag"), None);
}

#[tokio::test]
async fn a_handler_that_is_cancelled_is_not_probed() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let slow = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-after", "slow")], "slow"),
            )
            .await
        }
    });
    world.reached("slow").await;
    clock.advance(SECOND * 28);
    let reply = ended("slow", slow).await;
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (503, "outcome-unknown")
    );
    assert_eq!((reply.header("etag"), world.runs(&Method::GET)), (None, 0));
}

/// An unguarded POST changes the resource while a guarded write runs, and ends before or after it.
#[tokio::test]
async fn a_tag_never_names_the_bytes_of_an_unguarded_write() {
    for (elsewhere, ends_first) in [(false, true), (false, false), (true, true)] {
        let (clock, register) = (ManualClock::default(), durable());
        let world = World::with(&[("/a", "one")]);
        let process = || {
            ConditionalLayer::builder()
                .register(register.clone())
                .clock(clock.clone())
                .build()
        };
        let here = process().layer(world.clone());
        let other = if elsewhere {
            process().layer(world.clone())
        } else {
            here.clone()
        };
        let put = tokio::spawn({
            let here = here.clone();
            async move {
                send(
                    &here,
                    request("PUT /a", &[("x-get-hold-before", "probe")], "put"),
                )
                .await
            }
        });
        world.reached("probe").await;
        let post = tokio::spawn(async move {
            send(
                &other,
                request("POST /a", &[("x-hold-after", "post")], "post"),
            )
            .await
        });
        world.reached("post").await;
        if ends_first {
            world.release("post");
            settle().await;
            assert!(post.is_finished(), "an unguarded write waits for nothing");
        }
        world.release("probe");
        let written = put.await.unwrap();
        world.release("post");
        assert_eq!(post.await.unwrap().status, 204);
        assert_eq!(
            (written.status.as_u16(), written.header("etag")),
            (204, None),
            "{elsewhere} {ends_first}"
        );
        // A tag would name these bytes.
        let current = ask(&here, "GET /a", &[]).await;
        assert_eq!(&current.body[..], b"post");
    }
}

#[tokio::test]
async fn an_authoritative_register_forgets_a_version_that_an_unguarded_write_has_disturbed() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    world.respond("PUT /a", "etag", "\"of-put\"");
    let put = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-after", "put")], "put"),
            )
            .await
        }
    });
    world.reached("put").await;
    assert_eq!(
        send(&service, request("POST /a", &[], "post")).await.status,
        204
    );
    world.release("put");
    assert_eq!(put.await.unwrap().tag(), "\"of-put\"");
    let stale = send(
        &service,
        request("PUT /a", &[("if-match", "\"of-put\"")], "lost"),
    )
    .await;
    assert_eq!(
        (stale.status.as_u16(), world.get("/a").as_deref()),
        (412, Some("post"))
    );
}
