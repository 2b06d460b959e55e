//! Writes that fail, crash or never end: no update is lost, and nothing stays locked.

use std::time::Duration;

use http::{Method, Request};
use ifmatch::{ConditionalLayer, ConditionalService};
use ifmatch_core::command::{Authority, Begin, Command, Outcome};
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Driver, Key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    ManualClock, Reply, Sent, World, ask, builder, durable, ended, request, send, settle,
    with_authority,
};

const SECOND: Duration = Duration::from_secs(1);

/// A conditional write that must wait for the end of the doubt, and then probe.
async fn write_after_doubt(
    service: &ConditionalService<World>,
    world: &World,
    clock: &ManualClock,
    tag: &str,
    doubt: Duration,
) -> Reply {
    let runs = world.runs(&Method::GET);
    let writer = tokio::spawn({
        let (service, tag) = (service.clone(), tag.to_owned());
        async move { send(&service, request("PUT /a", &[("if-match", &tag)], "next")).await }
    });
    settle().await;
    assert!(!writer.is_finished(), "it did not wait: {:?}", writer.await);
    assert_eq!(world.runs(&Method::GET), runs);
    clock.advance(doubt);
    writer.await.unwrap()
}

#[tokio::test]
async fn after_a_failure_the_next_writer_waits_and_probes() {
    // The end of the first write, its response, and its effect.
    for (end, value, status, effect) in [
        ("x-end", "500", 500, false),
        ("x-end-after", "500", 500, true),
        ("x-panic", "1", 500, true),
        ("x-end-after", "408", 408, true),
    ] {
        for authoritative in [true, false] {
            let (builder, clock, _) = builder();
            let world = World::with(&[("/a", "one")]);
            let builder = with_authority(builder, authoritative);
            let service = builder.build().layer(world.clone());
            let tag = ask(&service, "GET /a", &[]).await.tag();
            let failed = send(
                &service,
                request("PUT /a", &[("if-match", &tag), (end, value)], "two"),
            )
            .await;
            assert_eq!(failed.status.as_u16(), status);
            let next = write_after_doubt(&service, &world, &clock, &tag, SECOND).await;
            assert_eq!(
                next.status.as_u16(),
                if effect { 412 } else { 204 },
                "{end}: {value}"
            );
            assert_eq!(
                world.get("/a").as_deref(),
                Some(if effect { "two" } else { "next" })
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_by_the_handler_blocks_no_other_write() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let refused = send(
        &service,
        request("PUT /a", &[("if-match", &tag), ("x-end", "422")], "two"),
    )
    .await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 1);
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn an_accepted_write_is_in_doubt_until_its_deadline() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .write_timeout(SECOND * 5)
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        send(&service, request("PUT /a", &[("x-end", "202")], "two"))
            .await
            .status,
        202
    );
    let next = write_after_doubt(&service, &world, &clock, &tag, SECOND * 5).await;
    assert_eq!(next.status, 204);
}

#[tokio::test]
async fn a_redirect_after_a_write_leaves_the_state_to_a_probe() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        send(
            &service,
            request("POST /a", &[("x-end-after", "303")], "two")
        )
        .await
        .status,
        303
    );
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        200
    );
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "lost"))
            .await
            .status,
        412
    );
}

#[tokio::test]
async fn a_handler_is_cancelled_before_its_permit_ends() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .write_timeout(SECOND * 20)
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let slow = tokio::spawn({
        let (service, tag) = (service.clone(), tag.clone());
        async move {
            let fields = [("if-match", tag.as_str()), ("x-hold-before", "slow")];
            send(&service, request("PUT /a", &fields, "slow")).await
        }
    });
    world.reached("slow").await;
    clock.advance(SECOND * 19);
    let reply = ended("slow", slow).await;
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (503, "outcome-unknown")
    );
    world.release("slow");
    let next = write_after_doubt(&service, &world, &clock, &tag, SECOND).await;
    assert_eq!(
        (next.status.as_u16(), world.get("/a").as_deref()),
        (204, Some("next"))
    );
}

#[tokio::test]
async fn a_write_continues_after_its_client_disconnects() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let client = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-after", "half")], "two"),
            )
            .await
        }
    });
    world.reached("half").await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    world.release("half");
    // It succeeds because the first write has released its permit.
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "three"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn after_the_crash_of_another_process_a_writer_probes_at_the_deadline() {
    for effect in [true, false] {
        let (builder, clock, register) = builder();
        let world = World::with(&[("/a", "one")]);
        let service = builder
            .authoritative()
            .lock_timeout(SECOND * 60)
            .build()
            .layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let crashed = Driver::with_clock(register, clock.clone());
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, 1, SECOND * 30)
            .with_authority(Authority::Register);
        let applied = crashed
            .apply(&Key::new("/a").unwrap(), &Command::Begin(begin))
            .await
            .unwrap();
        assert!(matches!(applied.outcome, Outcome::Granted(_)));
        if effect {
            world.set("/a", "by the crashed");
        }
        // Memory must not be used: the write may have taken effect.
        let runs = world.runs(&Method::GET);
        ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
        assert_eq!(world.runs(&Method::GET), runs + 1);
        let next = write_after_doubt(&service, &world, &clock, &tag, SECOND * 30).await;
        assert_eq!(next.status.as_u16(), if effect { 412 } else { 204 });
    }
}

#[tokio::test]
async fn a_writer_that_exceeds_its_patience_gets_retry_after() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .lock_timeout(SECOND * 2)
        .build()
        .layer(world.clone());
    let first = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-before", "first")], "two"),
            )
            .await
        }
    });
    world.reached("first").await;
    let second = tokio::spawn({
        let service = service.clone();
        async move { send(&service, request("PUT /a", &[], "three")).await }
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
        clock.advance(SECOND / 5);
    }
    let refused = second.await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.problem().as_str()),
        (409, "write-in-flight")
    );
    assert!(refused.header("retry-after").is_some());
    world.release("first");
    assert_eq!(first.await.unwrap().status, 204);
}

#[tokio::test]
async fn writes_fail_before_they_begin_without_the_register() {
    let (builder, _, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    register.cut(true);
    for fields in [&[][..], &[("if-match", "*")]] {
        let reply = send(&service, request("PUT /a", fields, "two")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.problem().as_str()),
            (503, "unavailable")
        );
        assert!(reply.header("retry-after").is_some());
    }
    assert_eq!(world.runs(&Method::PUT), 0);
    register.cut(false);
    assert_eq!(
        send(&service, request("PUT /a", &[], "two")).await.status,
        204
    );
}

#[tokio::test]
async fn a_register_that_fails_at_the_end_of_a_write_does_not_hide_its_success() {
    let (builder, clock, register) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("PUT /a", "etag", "\"v2\"");
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let writer = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-after", "written")], "two"),
            )
            .await
        }
    });
    world.reached("written").await;
    register.cut(true);
    world.release("written");
    let reply = writer.await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.header("etag")), (204, None));
    register.cut(false);
    // The commit is retried. Then the record has the handler's tag.
    for _ in 0..50 {
        tokio::task::yield_now().await;
        clock.advance(SECOND / 50);
    }
    let lost = send(&service, request("PUT /a", &[("if-match", &tag)], "lost")).await;
    assert_eq!((lost.status.as_u16(), lost.tag().as_str()), (412, "\"v2\""));
}

#[tokio::test]
async fn a_write_overtaken_by_another_is_not_acknowledged() {
    let (builder, clock, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .lock_timeout(SECOND * 60)
        .build()
        .layer(world.clone());
    // The clock of the first process stops, so it misses its deadline.
    let stopped = ConditionalLayer::builder()
        .register(register)
        .clock(ManualClock::default());
    let late = tokio::spawn({
        let sleepy = stopped.authoritative().build().layer(world.clone());
        async move {
            send(
                &sleepy,
                request("PUT /a", &[("x-hold-before", "late")], "late"),
            )
            .await
        }
    });
    world.reached("late").await;
    clock.advance(SECOND * 31);
    assert_eq!(
        send(&service, request("PUT /a", &[], "two")).await.status,
        204
    );
    let tag = ask(&service, "GET /a", &[]).await.tag();
    world.release("late");
    let reply = late.await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (503, "outcome-unknown")
    );
    // The overtaken write has taken effect, so the second writer's state must not be confirmed to its readers.
    assert_eq!(world.get("/a").as_deref(), Some("late"));
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        200
    );
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "lost"))
            .await
            .status,
        412
    );
}

#[tokio::test]
async fn a_handler_may_write_another_resource_through_the_same_layer() {
    let layer = ConditionalLayer::builder()
        .register(durable())
        .clock(ManualClock::default())
        .lock_timeout(Duration::ZERO)
        .build();
    let world = World::default();
    let nested = layer.layer(world.clone());
    let inner = service_fn(move |outer: Request<Sent>| {
        let nested = nested.clone();
        async move {
            let path = outer
                .headers()
                .get("x-nested")
                .map(|path| path.to_str().unwrap().to_owned());
            let line = format!("PUT {}", path.as_deref().unwrap_or("/inner"));
            nested
                .oneshot(request(&line, &[("if-none-match", "*")], "nested"))
                .await
        }
    });
    let service = layer.layer(inner);
    assert_eq!(
        send(&service, request("PUT /outer", &[], "x")).await.status,
        201
    );
    // A write of the same resource is in flight already, so this one is rejected instead of deadlocking.
    let reply = send(
        &service,
        request("PUT /outer2", &[("x-nested", "/outer2")], "x"),
    )
    .await;
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (409, "write-in-flight")
    );
}
