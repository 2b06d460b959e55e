//! Faulty origins and malicious clients: responses are correct or errors, and wrong content is never stored.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::support::{self, Answer, TestBody, World, get, request, response};

const FRESH: (&str, &str) = support::FRESH[0];

/// Requests again, and checks that the earlier response wasn't stored.
async fn not_stored(world: &World, path: &str) {
    world.origin.will(200, &[], "asked again");
    assert_eq!(world.get(path).await.text(), "asked again");
}

#[tokio::test]
async fn a_body_with_a_wrong_length_is_not_stored() {
    for (length, body) in [("6", "hello"), ("4", "hello"), ("1", ""), ("0", "hello")] {
        let world = World::default();
        world
            .origin
            .will(200, &[FRESH, ("content-length", length)], body);
        let answer = world.get("/").await;
        assert!(answer.body.is_err(), "{length}: the client learns of it");
        not_stored(&world, "/").await;
    }
}

#[tokio::test]
async fn contradictory_lengths_are_not_stored() {
    let bad: [&[(&str, &str)]; 4] = [
        &[FRESH, ("content-length", "5"), ("content-length", "6")],
        &[FRESH, ("content-length", "5, 5")],
        &[FRESH, ("content-length", "-5")],
        &[FRESH, ("content-length", "99999999999999999999999")],
    ];
    for fields in bad {
        let world = World::default();
        world.origin.will(200, fields, "hello");
        assert_eq!(world.get("/").await.text(), "hello");
        not_stored(&world, "/").await;
    }
}

#[tokio::test]
async fn a_truncated_body_is_never_served_as_complete() {
    let world = World::default();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &[FRESH], "").map(|_| body));
    let first = world.try_send(get("/", &[])).await.unwrap();
    let waiter = world.try_send(get("/", &[])).await.unwrap();
    feed.send("hel");
    feed.fail();
    assert!(Answer::read(first).await.body.is_err());
    assert!(Answer::read(waiter).await.body.is_err());
    not_stored(&world, "/").await;
    world
        .origin
        .will_answer(response(200, &[FRESH], "hel").map(TestBody::and_break));
    assert!(world.get("/at-once").await.body.is_err());
    not_stored(&world, "/at-once").await;
}

#[tokio::test]
async fn a_truncated_body_does_not_replace_a_stored_one() {
    let world = World::default();
    world.origin.will(200, &[FRESH, ("etag", "\"1\"")], "hello");
    world.get("/").await;
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &[FRESH, ("etag", "\"2\"")], "").map(|_| body));
    let reload = world
        .try_send(get("/", &[("cache-control", "no-cache")]))
        .await
        .unwrap();
    feed.send("new");
    feed.fail();
    assert!(Answer::read(reload).await.body.is_err());
    assert_eq!(world.get("/").await.text(), "hello");
    assert_eq!(world.origin.count(), 2);
}

#[tokio::test]
async fn a_panicking_body_releases_all_waiters() {
    let world = World::default();
    world
        .origin
        .will_answer(response(200, &[FRESH], "hel").map(TestBody::and_panic));
    assert!(world.get("/").await.body.is_err());
    not_stored(&world, "/").await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_without_readers_is_abandoned() {
    let world = World::default();
    let (feed, body) = TestBody::live();
    world
        .origin
        .will_answer(response(200, &[FRESH], "").map(|_| body));
    let reader = world.try_send(get("/", &[])).await.unwrap();
    feed.send("hel");
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(feed.send("lo"), "there is a reader");
    drop(reader);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(!feed.send("!"), "there is no reader");
    not_stored(&world, "/").await;
}

#[tokio::test]
async fn trailers_are_stored_and_passed_on() {
    let world = World::default();
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("x-sum"),
        HeaderValue::from_static("7"),
    )]);
    world.origin.will_answer(
        response(200, &[FRESH], "hello").map(|body| body.and_trailers(trailers.clone())),
    );
    for _ in 0..2 {
        let answer = world.get("/").await;
        assert_eq!(
            (answer.text(), &answer.trailers),
            ("hello", &Some(trailers.clone()))
        );
    }
    assert_eq!(world.origin.count(), 1);
}

#[tokio::test]
async fn requests_with_an_ambiguous_host_are_not_cached() {
    let world = World::default();
    world.origin.will(200, &[FRESH], "a's");
    world.get_with("/", &[("host", "a.example")]).await;
    let doubtful: [(&str, &[(&str, &str)]); 4] = [
        ("/", &[("host", "a.example"), ("host", "evil.example")]),
        ("http://evil.example/", &[("host", "a.example")]),
        ("/", &[("host", "evil@a.example")]),
        ("/", &[("host", "a.example/x")]),
    ];
    for (path, fields) in doubtful {
        world.origin.will(200, &[FRESH], "evil");
        let answer = world.get_with(path, fields).await;
        assert_eq!(
            (answer.text(), answer.cache_status()),
            ("evil", "ifmatch; fwd=bypass"),
            "{path} {fields:?}"
        );
    }
    assert_eq!(
        world.get_with("/", &[("host", "a.example")]).await.text(),
        "a's"
    );
}

#[tokio::test]
async fn the_origin_receives_the_host_of_the_cache_key() {
    for (path, host) in [
        ("/", "A.example"),
        ("/", "a.example:80"),
        ("/", "a.example:"),
        ("/", "A.EXAMPLE:80"),
        ("http://A.example:80/", "a.example"),
    ] {
        for method in ["GET", "POST"] {
            let world = World::default();
            world.origin.will(200, &[FRESH], "hello");
            world.send(request(method, path, &[("host", host)])).await;
            let seen = &world.origin.seen()[0];
            assert_eq!(seen.headers["host"], "a.example", "{method} {path} {host}");
            assert!(
                seen.uri
                    .authority()
                    .is_none_or(|authority| authority == "a.example"),
                "{method} {path} {host}"
            );
        }
    }
}

#[tokio::test]
async fn unkeyed_inputs_do_not_poison_the_cache() {
    for (name, value) in [
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "evil"),
        ("x-forwarded-prefix", "/evil"),
        ("x-forwarded-anything", "evil"),
        ("x-host", "evil.example"),
        ("x-original-url", "/evil"),
        ("x-rewrite-url", "/evil"),
        ("x-http-method-override", "DELETE"),
        ("x-method-override", "DELETE"),
        ("x-http-host-override", "evil.example"),
        // CGI and WSGI can't distinguish the two.
        ("x_forwarded_host", "evil.example"),
        ("script_name", "/evil"),
        ("forwarded", "host=evil.example"),
        ("forwarded", "for=192.0.2.1;proto=evil"),
        (
            "forwarded",
            "for=192.0.2.1, for=192.0.2.2;host=evil.example",
        ),
        ("forwarded", "for=\"192.0.2.1;host=evil.example\""),
        ("forwarded", "for=\"192.0.2.1, host=evil.example"),
    ] {
        let world = World::default();
        world.origin.will(200, &[FRESH], "evil");
        world.get_with("/", &[(name, value)]).await;
        world.origin.will(200, &[FRESH], "good");
        assert_eq!(world.get("/").await.text(), "good", "{name}");
        assert_eq!(
            world.get_with("/", &[(name, value)]).await.text(),
            "evil",
            "{name}"
        );
        assert_eq!(world.get("/").await.text(), "good", "{name}");
        assert_eq!(world.origin.count(), 2, "{name}");
    }
}

#[tokio::test]
async fn client_addresses_select_nothing() {
    let world = World::default();
    world.origin.will(200, &[FRESH], "hello");
    world.get("/").await;
    for (name, value) in [
        ("x-forwarded-for", "192.0.2.1"),
        (
            "forwarded",
            "for=192.0.2.1;by=_gateway, for=\"[2001:db8::1]:4711\"",
        ),
        ("x-real-ip", "192.0.2.1"),
        ("x-request-id", "7"),
    ] {
        assert!(
            world.get_with("/", &[(name, value)]).await.is_hit(),
            "{name}"
        );
    }
    // The same request, with client addresses in another order.
    let fields = |forwarded| {
        [
            ("forwarded", forwarded),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a"),
        ]
    };
    world.origin.will(200, &[FRESH], "by https");
    world
        .get_with("/", &fields("for=192.0.2.1;proto=https"))
        .await;
    let mut other = fields("proto=https; for=192.0.2.7");
    other.reverse();
    assert_eq!(world.get_with("/", &other).await.text(), "by https");
}

#[tokio::test]
async fn a_non_ascii_location_invalidates() {
    let world = World::default();
    world.origin.will(200, &[FRESH], "old");
    world.get("/%C3%BC").await;
    world.origin.will(201, &[("location", "/\u{fc}")], "");
    world.send(request("POST", "/", &[])).await;
    not_stored(&world, "/%C3%BC").await;
}

#[tokio::test]
async fn a_get_with_content_does_not_poison_the_cache() {
    for fields in [
        &[("content-length", "5")][..],
        &[("transfer-encoding", "chunked")],
    ] {
        let world = World::default();
        world.origin.will(200, &[FRESH], "evil");
        world.get_with("/", fields).await;
        world.origin.will(200, &[FRESH], "good");
        assert_eq!(world.get("/").await.text(), "good");
    }
    let world = World::default();
    let fat = get("/", &[]).map(|_| TestBody::from("q=evil"));
    world.origin.will(200, &[FRESH], "evil");
    world.send(fat).await;
    world.origin.will(200, &[FRESH], "good");
    assert_eq!(world.get("/").await.text(), "good");
}

#[tokio::test]
async fn upgrades_pass_untouched_and_writes_with_one_invalidate() {
    let world = World::default();
    world.origin.will(200, &[FRESH], "hello");
    world.get("/").await;
    world.origin.will(101, &[], "");
    let answer = world
        .get_with("/", &[("connection", "upgrade"), ("upgrade", "websocket")])
        .await;
    assert_eq!(answer.status, 101);
    assert_eq!(world.origin.seen()[1].headers["connection"], "upgrade");
    assert!(world.get("/").await.is_hit());
    // A write with an upgrade is still a write.
    world.origin.will(200, &[], "");
    world
        .send(request(
            "PUT",
            "/",
            &[("connection", "upgrade"), ("upgrade", "h2c")],
        ))
        .await;
    not_stored(&world, "/").await;
}

#[tokio::test]
async fn too_many_ranges_get_the_whole_once() {
    let world = World::default();
    world.origin.will(200, &[FRESH], &"x".repeat(1_000));
    world.get("/").await;
    for range in [
        format!("bytes={}", "0-,".repeat(500)),
        format!("bytes={}", "0-0,".repeat(50)),
        "bytes=5-,0-9".to_owned(),
    ] {
        let answer = world.get_with("/", &[("range", &range)]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text().len()),
            (200, 1_000),
            "{range}"
        );
    }
}

#[tokio::test]
async fn a_304_that_matches_nothing_is_not_forwarded_to_an_unconditional_request() {
    let world = World::default();
    let fields = [("cache-control", "max-age=60"), ("etag", "\"1\"")];
    world.origin.will(200, &fields, "hello");
    world.get("/").await;
    world.pass(61);
    world.origin.will(304, &[("etag", "\"2\"")], "");
    world.origin.will(200, &[FRESH, ("etag", "\"2\"")], "new");
    assert_eq!(
        world.get("/").await.text(),
        "new",
        "asked again without a condition"
    );
    assert!(!world.origin.seen()[2].headers.contains_key("if-none-match"));
    world.origin.will(304, &[], "");
    assert_eq!(world.send(request("HEAD", "/other", &[])).await.status, 502);
}

#[tokio::test]
async fn responses_with_too_many_header_fields_are_not_stored() {
    let world = World::default();
    let many = |count: usize| {
        let names: Vec<_> = (0..count).map(|at| format!("x-{at}")).collect();
        let mut fields = vec![FRESH, ("etag", "\"1\"")];
        fields.extend(names.iter().map(|name| (name.as_str(), "1")));
        response(200, &fields, "hello")
    };
    for path in ["/many", "/most"] {
        world
            .origin
            .will_answer(many(if path == "/many" { 1_001 } else { 24_000 }));
        assert_eq!(world.get(path).await.text(), "hello");
        not_stored(&world, path).await;
    }
    // A 304 can't add too many either.
    world.origin.will_answer(many(900));
    world.get("/").await;
    world.pass(61);
    let mut confirmation = many(24_000).map(|_| TestBody::default());
    *confirmation.status_mut() = http::StatusCode::NOT_MODIFIED;
    world.origin.will_answer(confirmation);
    assert_eq!(world.get("/").await.text(), "hello");
    not_stored(&world, "/").await;
}

#[tokio::test]
async fn long_header_fields_stay_within_the_capacity() {
    let world = World::with(|builder| builder.capacity(100_000));
    let huge = "x".repeat(200_000);
    world.origin.will(200, &[FRESH, ("x-huge", &huge)], "hello");
    assert_eq!(world.get("/").await.text(), "hello");
    assert!(world.handle.metrics().stored_bytes <= 100_000);
}

/// A server that compresses weakens the tag of the 200, and answers a validation with the tag of the file. The stored bytes are
/// confirmed, and keep their own tag: with the strong one a client could join them with bytes before compression.
#[tokio::test]
async fn a_304_with_the_strong_form_of_a_weak_tag_confirms_and_keeps_the_weak_one() {
    let world = World::default();
    let fields = [
        ("cache-control", "max-age=60"),
        ("etag", "W/\"1\""),
        ("content-encoding", "gzip"),
    ];
    world.origin.will(200, &fields, "compressed");
    world.get("/").await;
    for at in 0..2 {
        world.pass(61);
        world.origin.will(
            304,
            &[
                ("cache-control", "max-age=60"),
                ("etag", "\"1\""),
                ("x-at", "new"),
            ],
            "",
        );
        let answer = world.get("/").await;
        assert_eq!(
            (answer.text(), &answer.headers["x-at"]),
            ("compressed", &"new".parse().unwrap()),
            "{at}"
        );
        assert_eq!(
            (&answer.headers["etag"], &answer.headers["content-encoding"]),
            (&"W/\"1\"".parse().unwrap(), &"gzip".parse().unwrap())
        );
        assert_eq!(
            world.origin.seen().last().unwrap().headers["if-none-match"],
            "W/\"1\""
        );
    }
    assert!(world.get("/").await.is_hit());
    // No range of the stored bytes is given to a client that names the strong tag, and no rest is requested by it.
    let part = world
        .get_with("/", &[("range", "bytes=0-1"), ("if-range", "\"1\"")])
        .await;
    assert_eq!((part.status.as_u16(), part.text()), (200, "compressed"));
    // The tag of another version confirms nothing.
    world.pass(61);
    world.origin.will(304, &[("etag", "\"2\"")], "");
    world.origin.will(200, &[], "another");
    assert_eq!(world.get("/").await.text(), "another");
}

#[tokio::test]
async fn only_if_cached_rules_out_the_origin_with_a_body_and_conditions_as_well() {
    for own in [
        ("content-length", "1"),
        ("if-match", "*"),
        ("transfer-encoding", "chunked"),
    ] {
        let world = World::default();
        let answer = world
            .get_with("/", &[own, ("cache-control", "only-if-cached")])
            .await;
        assert_eq!(
            (answer.status.as_u16(), world.origin.count()),
            (504, 0),
            "{own:?}"
        );
    }
}
