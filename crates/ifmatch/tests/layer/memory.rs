//! 304 from memory.

use std::time::Duration;

use http::Method;
use ifmatch::ConditionalLayer;
use tower::Layer;

use crate::support::{ManualClock, World, ask, builder, durable, request, send, with_authority};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_authoritative_register_answers_304_without_the_inner_service() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    for method in ["GET", "HEAD"] {
        let reply = ask(
            &service,
            &format!("{method} /a"),
            &[("if-none-match", &tag)],
        )
        .await;
        assert_eq!(reply.status, 304);
        assert_eq!(reply.tag(), tag);
        assert!(reply.body.is_empty() && reply.header("content-length").is_none());
        assert_eq!(reply.header("age"), None);
    }
    assert_eq!(world.runs(&Method::GET), 1);
}

#[tokio::test]
async fn a_request_without_a_matching_condition_always_runs_the_inner_service() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let other_fields: [&[(&str, &str)]; 4] = [
        &[],
        &[("if-none-match", "\"other\"")],
        &[("if-none-match", "unquoted")],
        &[("if-match", &tag)],
    ];
    for (at, fields) in other_fields.into_iter().enumerate() {
        assert_eq!(
            ask(&service, "GET /a", fields).await.status,
            200,
            "{fields:?}"
        );
        assert_eq!(world.runs(&Method::GET), at + 2);
    }
    let both = [("if-match", "\"other\""), ("if-none-match", tag.as_str())];
    assert_eq!(ask(&service, "GET /a", &both).await.status, 412);
}

#[tokio::test]
async fn an_unseen_change_is_noticed_immediately_without_authority() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    world.set("/a", "two");
    let reply = ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"two"[..]));
    assert_ne!(reply.tag(), tag);
}

#[tokio::test]
async fn a_response_is_reused_with_its_age_until_it_is_stale() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "cache-control", "max-age=60");
    world.respond("GET /a", "age", "10");
    let service = builder.build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    clock.advance(SECOND * 49);
    let reply = ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("age").as_deref()),
        (304, Some("59"))
    );
    assert_eq!(reply.header("cache-control").as_deref(), Some("max-age=60"));
    assert_eq!(world.runs(&Method::GET), 1);
    for forced in ["no-cache", "max-age=0"] {
        let fields = [("if-none-match", tag.as_str()), ("cache-control", forced)];
        assert_eq!(ask(&service, "GET /a", &fields).await.status, 304);
    }
    assert_eq!(world.runs(&Method::GET), 3);
    clock.advance(SECOND * 60);
    world.set("/a", "two");
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_write_invalidates_memory() {
    for authoritative in [true, false] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        world.respond("GET /a", "cache-control", "max-age=60");
        let builder = with_authority(builder, authoritative);
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        assert_eq!(
            send(&service, request("PUT /a", &[], "two")).await.status,
            204
        );
        let reply = ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"two"[..]));
    }
}

#[tokio::test]
async fn a_write_by_another_process_invalidates_memory() {
    let (clock, register) = (ManualClock::default(), durable());
    let world = World::with(&[("/a", "one")]);
    let process = || {
        let builder = ConditionalLayer::builder()
            .register(register.clone())
            .clock(clock.clone());
        builder.authoritative().build().layer(world.clone())
    };
    let (here, there) = (process(), process());
    let tag = ask(&here, "GET /a", &[]).await.tag();
    assert_eq!(
        ask(&here, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(
        send(&there, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        204
    );
    assert_eq!(
        ask(&here, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn the_register_is_not_checked_within_the_staleness_bound() {
    let (builder, clock, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .max_staleness(SECOND)
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    register.cut(true);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 1);
    clock.advance(SECOND);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 2);
}

#[tokio::test]
async fn private_responses_are_never_remembered() {
    let fields = [
        ("cache-control", "private"),
        ("cache-control", "no-store"),
        ("set-cookie", "a=b"),
        ("vary", "*"),
    ];
    for (name, value) in fields {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        world.respond("GET /a", name, value);
        let service = builder
            .authoritative()
            .behind_authentication()
            .build()
            .layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", &tag)])
                .await
                .status,
            304
        );
        assert_eq!(world.runs(&Method::GET), 2, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_request_with_credentials_runs_the_inner_service() {
    for credentials in [("authorization", "Bearer x"), ("cookie", "a=b")] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        let service = builder.authoritative().build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[credentials]).await.tag();
        // Its response isn't reused for requests without credentials either.
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", &tag)])
                .await
                .status,
            304
        );
        assert_eq!(world.runs(&Method::GET), 2);
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", &tag), credentials])
                .await
                .status,
            304
        );
        assert_eq!(world.runs(&Method::GET), 3);
    }
}

#[tokio::test]
async fn credentials_do_not_matter_behind_authentication() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .behind_authentication()
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[("cookie", "a=b")]).await.tag();
    assert_eq!(
        ask(
            &service,
            "GET /a",
            &[("if-none-match", &tag), ("cookie", "a=b")]
        )
        .await
        .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 1);
}

#[tokio::test]
async fn each_variant_and_query_is_remembered_separately() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "vary", "Accept-Language");
    let service = builder.authoritative().build().layer(world.clone());
    let german = ("accept-language", "de");
    let tag = ask(&service, "GET /a", &[german]).await.tag();
    let known = ask(&service, "GET /a", &[german, ("if-none-match", &tag)]).await;
    assert_eq!(
        (known.status.as_u16(), known.header("vary").as_deref()),
        (304, Some("Accept-Language"))
    );
    assert_eq!(world.runs(&Method::GET), 1);
    ask(
        &service,
        "GET /a",
        &[("accept-language", "fr"), ("if-none-match", &tag)],
    )
    .await;
    ask(
        &service,
        "GET /a?page=2",
        &[german, ("if-none-match", &tag)],
    )
    .await;
    assert_eq!(world.runs(&Method::GET), 3);
    // The first one is still remembered along with the others.
    ask(&service, "GET /a", &[german, ("if-none-match", &tag)]).await;
    assert_eq!(world.runs(&Method::GET), 3);
}

#[tokio::test]
async fn a_read_that_began_before_a_write_leaves_no_old_tag() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let reader = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, "GET /a", &[("x-get-hold-after", "read")]).await }
    });
    world.reached("read").await;
    assert_eq!(
        send(&service, request("PUT /a", &[], "two")).await.status,
        204
    );
    world.release("read");
    let old = reader.await.unwrap();
    assert_eq!(&old.body[..], b"one");
    let reply = ask(&service, "GET /a", &[("if-none-match", &old.tag())]).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"two"[..]));
    let lost = send(
        &service,
        request("PUT /a", &[("if-match", &old.tag())], "three"),
    )
    .await;
    assert_eq!(lost.status, 412);
    assert_eq!(lost.tag(), reply.tag());
}

#[tokio::test]
async fn nothing_is_recorded_or_answered_from_memory_during_a_write() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
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
    let during = ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
    assert_eq!(
        (during.status.as_u16(), &during.body[..]),
        (200, &b"two"[..])
    );
    assert_eq!(during.header("last-modified"), None);
    let runs = world.runs(&Method::GET);
    ask(&service, "GET /a", &[("if-none-match", &during.tag())]).await;
    assert_eq!(world.runs(&Method::GET), runs + 1);
    world.release("written");
    assert_eq!(writer.await.unwrap().status, 204);
}

#[tokio::test]
async fn reads_succeed_without_the_register() {
    let (builder, _, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    register.cut(true);
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 2);
}

#[tokio::test]
async fn a_304_has_the_fields_of_the_latest_200_of_its_version() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.authoritative().build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    for policy in ["max-age=1", "max-age=2", "max-age=2", "max-age=3"] {
        world.respond("GET /a", "cache-control", policy);
        assert_eq!(ask(&service, "GET /a", &[]).await.tag(), tag);
        let known = ask(&service, "GET /a", &[("if-none-match", &tag)]).await;
        assert_eq!(
            (
                known.status.as_u16(),
                known.header("cache-control").as_deref()
            ),
            (304, Some(policy))
        );
    }
    assert_eq!(world.runs(&Method::GET), 5);
}

#[tokio::test]
async fn a_200_of_the_same_version_restarts_the_staleness_bound() {
    let (builder, clock, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .max_staleness(10 * SECOND)
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    clock.advance(9 * SECOND);
    ask(&service, "GET /a", &[]).await;
    clock.advance(9 * SECOND);
    register.cut(true);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), 2);
}
