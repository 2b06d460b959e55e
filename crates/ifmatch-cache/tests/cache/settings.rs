//! Settings of the operator.

use std::time::Duration;

use ifmatch_cache::policy::freshness::Heuristic;
use ifmatch_cache::{Builder, Purge};

use crate::support::{FRESH, World, get, response, settle};

#[tokio::test]
async fn request_directives_can_be_ignored() {
    let world = World::with(Builder::ignore_request_directives);
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    assert!(
        world
            .get_with("/", &[("cache-control", "no-cache")])
            .await
            .is_hit()
    );
    world.origin.will(200, &FRESH, "hello");
    world.get_with("/b", &[("cache-control", "no-store")]).await;
    world.origin.will(200, &FRESH, "again");
    assert_eq!(world.get("/b").await.text(), "again");
}

#[tokio::test]
async fn cookies_can_be_shared() {
    let fields = [
        ("cache-control", "max-age=60"),
        ("etag", "\"1\""),
        ("set-cookie", "a=b"),
    ];
    let world = World::with(Builder::share_cookies);
    world.origin.will(200, &fields, "hello");
    world.get("/").await;
    assert_eq!(world.get("/").await.headers["set-cookie"], "a=b");
    world.pass(61);
    world.origin.will(304, &[("set-cookie", "c=d")], "");
    world.get("/").await;
    assert_eq!(world.get("/").await.headers["set-cookie"], "c=d");
    assert_eq!(world.origin.count(), 2);
}

#[tokio::test]
async fn responses_that_vary_by_an_overwritten_field_are_not_stored() {
    let set = |builder: Builder| builder.overwritten(|name| name == "x-forwarded-for");
    for vary in ["x-forwarded-for", "accept, X-Forwarded-For"] {
        let world = World::with(set);
        world
            .origin
            .will(200, &[FRESH[0], ("vary", vary)], "one client's");
        world.get("/").await;
        world.origin.will(
            200,
            &[FRESH[0], ("vary", "accept"), ("etag", "\"1\"")],
            "another's",
        );
        assert_eq!(world.get("/").await.text(), "another's", "{vary}");
        // A revalidation that adds the field removes the stored response.
        world.pass(61);
        world.origin.will(304, &[("vary", vary)], "");
        world.get("/").await;
        world.origin.will(200, &[], "a third one's");
        assert_eq!(world.get("/").await.text(), "a third one's", "{vary}");
    }
}

#[tokio::test]
async fn an_overwritten_field_selects_nothing() {
    let world = World::with(|builder| {
        builder.overwritten(|name| name.as_str().starts_with("x-forwarded-"))
    });
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    for at in 0..100 {
        assert!(
            world
                .get_with("/", &[("x-forwarded-host", &format!("h{at}.example"))])
                .await
                .is_hit()
        );
    }
    assert!(world.get("/").await.is_hit());
}

#[tokio::test]
async fn the_heuristic_can_be_disabled() {
    let world = World::with(|builder| builder.heuristic(None));
    let modified = world.date(-6_000);
    world
        .origin
        .will(200, &[("last-modified", &modified)], "hello");
    world.get("/").await;
    world.origin.will(200, &[], "again");
    assert_eq!(world.get("/").await.text(), "again");
}

#[tokio::test]
async fn responses_without_a_lifetime_can_get_a_default() {
    let heuristic = Heuristic {
        default: Duration::from_secs(30),
        ..Heuristic::default()
    };
    let world = World::with(|builder| builder.heuristic(heuristic));
    let modified = world.date(-6_000);
    let own: [&[(&str, &str)]; 3] = [
        &[("last-modified", modified.as_str())],
        &[],
        &[("cache-control", "max-age=10")],
    ];
    for (at, (fields, lifetime)) in own.into_iter().zip([600, 30, 10]).enumerate() {
        let path = format!("/{at}");
        world.origin.will(200, fields, "hello");
        world.get(&path).await;
        world.pass(lifetime - 1);
        assert!(world.get(&path).await.is_hit(), "{fields:?}");
        world.pass(1);
        world
            .origin
            .will(200, &[("cache-control", "no-store")], "new");
        assert_eq!(world.get(&path).await.text(), "new", "{fields:?}");
    }
    for fields in [
        [("cache-control", "no-store")],
        [("cache-control", "private")],
        [("set-cookie", "a=b")],
    ] {
        world.origin.will(200, &fields, "hello");
        world.get("/x").await;
        world
            .origin
            .will(200, &[("cache-control", "no-store")], "new");
        assert_eq!(world.get("/x").await.text(), "new", "{fields:?}");
    }
    world.origin.will(200, &[], "hello");
    world
        .get_with("/y", &[("authorization", "Basic eDp5")])
        .await;
    world
        .origin
        .will(200, &[("cache-control", "no-store")], "new");
    assert_eq!(
        world.get("/y").await.text(),
        "new",
        "a credential rules out a default"
    );
}

#[tokio::test]
async fn errors_can_have_a_separate_lifetime() {
    let heuristic = Heuristic {
        errors: Some(Duration::from_secs(5)),
        ..Heuristic::default()
    };
    let world = World::with(|builder| builder.heuristic(heuristic));
    world.origin.will(404, &[], "not yet");
    world.get("/").await;
    world.pass(4);
    assert!(world.get("/").await.is_hit());
    world.pass(1);
    world.origin.will(200, &[], "hello");
    assert_eq!(world.get("/").await.text(), "hello");
    world.origin.will(200, &[], "again");
    assert_eq!(
        world.get("/").await.text(),
        "again",
        "a success has no such lifetime"
    );
    world.origin.will(503, &[], "no");
    world.get("/b").await;
    world.origin.will(200, &[], "hello");
    assert_eq!(
        world.get("/b").await.text(),
        "hello",
        "a failure of the origin is not stored"
    );
}

#[tokio::test]
async fn the_scheme_can_be_fixed() {
    let world = World::with(|builder| builder.scheme("https"));
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    assert!(world.get("https://origin.example/").await.is_hit());
    assert!(world.get("http://origin.example/").await.is_hit());
    assert_eq!(
        world
            .handle
            .purge(&Purge::Url("https://origin.example/".to_owned())),
        1
    );
}

#[tokio::test]
async fn responses_can_be_used_while_they_are_revalidated() {
    let world = World::with(|builder| builder.stale_while_revalidate(Duration::from_secs(10)));
    world.origin.will(200, &FRESH, "old");
    world.get("/").await;
    world.pass(69);
    let held = world.origin.will_wait();
    for _ in 0..3 {
        let answer = world.get("/").await;
        assert_eq!(
            (answer.text(), answer.cache_status()),
            ("old", "ifmatch; hit; ttl=-9")
        );
    }
    world.origin.reached(2).await;
    held.send(response(200, &FRESH, "new")).unwrap();
    settle().await;
    assert_eq!(world.get("/").await.text(), "new");
    world.pass(70);
    world.origin.will(200, &FRESH, "newer");
    assert_eq!(world.get("/").await.text(), "newer", "the time is over");
    world.pass(61);
    world.origin.will(200, &FRESH, "newest");
    let reload = world
        .get_with("/", &[("cache-control", "max-age=60")])
        .await;
    assert_eq!(reload.text(), "newest", "the client rules it out");
    assert_eq!(world.origin.count(), 4);
}

#[tokio::test]
async fn a_window_for_revalidation_holds_only_if_the_response_permits_it() {
    for (control, expected) in [
        ("max-age=60", true),
        ("max-age=60, public", true),
        ("max-age=60, stale-while-revalidate=20", true),
        ("max-age=60, stale-while-revalidate=2", false),
        ("max-age=60, stale-while-revalidate=0", false),
        ("max-age=60, stale-while-revalidate=x", false),
        ("max-age=60, must-revalidate", false),
        ("max-age=60, proxy-revalidate", false),
        ("s-maxage=60", true),
        ("max-age=60, s-maxage=60", true),
        ("s-maxage=60, must-revalidate", false),
        ("max-age=60, no-cache", false),
        ("max-age=0", false),
    ] {
        let world = World::with(|builder| builder.stale_while_revalidate(Duration::from_secs(10)));
        world
            .origin
            .will(200, &[("cache-control", control), ("etag", "\"1\"")], "old");
        world.get("/").await;
        world.pass(65);
        world.origin.will(200, &FRESH, "new");
        let answer = world.get("/").await;
        assert_eq!(
            answer.text() == "old",
            expected,
            "{control}: {}",
            answer.cache_status()
        );
        settle().await;
    }
}

/// By default as RFC 9111 §4.2.4 says, since an operator hasn't said anything.
#[tokio::test]
async fn only_a_setting_lets_s_maxage_be_stale_while_the_origin_is_unreachable() {
    for (control, by_default, by_setting) in [
        ("max-age=60", true, true),
        ("s-maxage=60", false, true),
        ("max-age=60, s-maxage=60", false, true),
        ("s-maxage=60, must-revalidate", false, false),
        ("s-maxage=60, proxy-revalidate", false, false),
        ("s-maxage=60, no-cache", false, false),
    ] {
        for (is_set, is_used) in [(false, by_default), (true, by_setting)] {
            let hour = Duration::from_hours(1);
            let world = World::with(|builder| {
                if is_set {
                    builder.stale_if_unreachable(hour)
                } else {
                    builder
                }
            });
            world.origin.will(
                200,
                &[("cache-control", control), ("etag", "\"1\"")],
                "hello",
            );
            world.get("/").await;
            world.pass(90);
            for request in 0..2 {
                world.origin.will_fail();
                let answer = world.try_send(get("/", &[])).await;
                assert_eq!(
                    answer.is_ok(),
                    is_used,
                    "{control}, set: {is_set}, {request}"
                );
            }
            world.origin.will_fail();
            let asked = [("cache-control", "max-stale, stale-if-error=600")];
            let answer = world.try_send(get("/", &asked)).await;
            assert_eq!(
                answer.is_ok(),
                is_used,
                "a client can't lift it: {control}, set: {is_set}"
            );
        }
    }
}

#[tokio::test]
async fn stale_responses_for_an_unreachable_origin_can_be_disabled() {
    let world = World::with(|builder| builder.stale_if_unreachable(Duration::ZERO));
    world.origin.will(200, &FRESH, "hello");
    world.get("/").await;
    world.pass(61);
    world.origin.will_fail();
    assert!(world.try_send(get("/", &[])).await.is_err());
}

#[tokio::test]
async fn spellings_of_accept_encoding_share_what_the_origin_has_seen() {
    let world = World::with(Builder::normalize_accept_encoding);
    let fields = [
        ("cache-control", "max-age=60"),
        ("vary", "accept-encoding"),
        ("content-encoding", "gzip"),
    ];
    world.origin.will(200, &fields, "zipped");
    world
        .get_with("/", &[("accept-encoding", "gzip, evil\"<;q=0.1")])
        .await;
    assert_eq!(world.origin.seen()[0].headers["accept-encoding"], "gzip");
    assert!(
        world
            .get_with("/", &[("accept-encoding", "deflate,GZIP")])
            .await
            .is_hit()
    );
    world.origin.will(200, &fields, "squeezed");
    assert_eq!(
        world
            .get_with("/", &[("accept-encoding", "gzip, br;q=0.7")])
            .await
            .text(),
        "squeezed"
    );
    world.origin.will(200, &FRESH, "plain");
    assert_eq!(world.get("/").await.text(), "plain");
    assert_eq!(world.origin.seen()[2].headers.get("accept-encoding"), None);
}
