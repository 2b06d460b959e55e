//! Purging, counters and settings.

use std::time::Duration;

use ifmatch_cache::policy::freshness::Heuristic;
use ifmatch_cache::{Invalidation, Purge};

use crate::support::{FRESH, World, get, response, settle};

async fn fill(world: &World, paths: &[&str]) {
    for path in paths {
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("cache-groups", "\"g\"")],
            path,
        );
        world.get(path).await;
    }
}

#[tokio::test]
async fn a_url_is_purged() {
    let world = World::default();
    fill(&world, &["/a", "/b"]).await;
    assert_eq!(
        world
            .handle
            .purge(&Purge::Url("HTTP://Origin.example:80/a#x".to_owned())),
        1
    );
    assert_eq!(
        world
            .handle
            .purge(&Purge::Url("http://origin.example/a".to_owned())),
        0
    );
    assert_eq!(world.handle.purge(&Purge::Url("no url".to_owned())), 0);
    assert!(world.get("/b").await.is_hit());
    assert!(!world.get("/a").await.is_hit());
}

#[tokio::test]
async fn a_prefix_is_purged() {
    let world = World::default();
    fill(&world, &["/a/1", "/a/2", "/b"]).await;
    assert_eq!(
        world
            .handle
            .purge(&Purge::Prefix("http://origin.example/a/".to_owned())),
        2
    );
    assert!(world.get("/b").await.is_hit());
    assert!(!world.get("/a/1").await.is_hit());
    assert_eq!(world.handle.purge(&Purge::Prefix(String::new())), 1);
}

#[tokio::test]
async fn a_prefix_may_have_the_host_as_clients_write_it() {
    for prefix in [
        "HTTP://Origin.Example/a",
        "http://origin.example:80/a/",
        "http://ORIGIN.ex",
        "Http://",
    ] {
        let world = World::default();
        fill(&world, &["/a/1"]).await;
        assert_eq!(
            world.handle.purge(&Purge::Prefix(prefix.to_owned())),
            1,
            "{prefix}"
        );
    }
}

#[tokio::test]
async fn a_purge_that_can_match_nothing_is_known() {
    let group = |origin: &str| Purge::Group {
        origin: origin.to_owned(),
        name: "g".to_owned(),
    };
    let url = |text: &str| Purge::Url(text.to_owned());
    let prefix = |text: &str| Purge::Prefix(text.to_owned());
    for sound in ["http://a", "https://a/b?c", "HTTP://A:80/", "http://[::1]/"] {
        for purge in [url(sound), prefix(sound), group(sound)] {
            assert_eq!(purge.not_a_url(), None, "{purge:?}");
        }
    }
    for beginning in ["", "http://", "https://a.exa"] {
        assert_eq!(prefix(beginning).not_a_url(), None, "{beginning}");
    }
    for wrong in [
        "x",
        "products/1",
        "/products/",
        "a.example/x",
        "products:1",
        "ftp://a/",
        "http:///x",
        "http:a",
        "//a/x",
    ] {
        for purge in [url(wrong), prefix(wrong), group(wrong)] {
            assert_eq!(purge.not_a_url(), Some(wrong), "{purge:?}");
        }
    }
    for no_url in ["", "http://"] {
        assert_eq!(
            (url(no_url).not_a_url(), group(no_url).not_a_url()),
            (Some(no_url), Some(no_url))
        );
    }
}

#[tokio::test]
async fn all_equivalent_urls_are_purged() {
    let spellings = [
        "/a/{b}",
        "/a/%7Bb%7D",
        "/a/%7bb%7d",
        "/x/../a/%7B%62}",
        "/%61/./{b}",
    ];
    let others = ["/A/{b}", "/a/{B}", "/a%2F{b}", "/a/{b}?"];
    let purge = |world: &World, purge: Purge| world.handle.purge(&purge);
    for what in [
        Purge::Url("http://origin.example/a/{b}".to_owned()),
        Purge::Url("http://origin.example/%61/%7bb%7d".to_owned()),
        Purge::Url("http://origin.example/y/..\\a/{b}#c".to_owned()),
    ] {
        let world = World::default();
        fill(&world, &spellings).await;
        fill(&world, &others).await;
        assert_eq!(purge(&world, what.clone()), 1, "{what:?}");
        for path in others {
            assert!(world.get(path).await.is_hit(), "{what:?} {path}");
        }
        for path in spellings {
            assert!(!world.get(path).await.is_hit(), "{what:?} {path}");
        }
    }
    for prefix in ["/a/{", "/a/%7", "/a/%7b", "/x/../a/", "/%61/%7Bb%", "/a/."] {
        let world = World::default();
        fill(&world, &spellings).await;
        fill(&world, &["/b"]).await;
        assert_eq!(
            purge(
                &world,
                Purge::Prefix(format!("http://origin.example{prefix}"))
            ),
            1,
            "{prefix}"
        );
        assert!(world.get("/b").await.is_hit());
        for path in spellings {
            assert!(!world.get(path).await.is_hit(), "{prefix} {path}");
        }
    }
}

#[tokio::test]
async fn a_purge_accepts_the_host_as_clients_write_it() {
    let world = World::default();
    for host in ["127.1", "[0::1]:8080", "a.example."] {
        world.origin.will(200, &FRESH, "hello");
        world.get_with("/", &[("host", host)]).await;
        assert_eq!(
            world.handle.purge(&Purge::Url(format!("http://{host}/"))),
            1,
            "{host}"
        );
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get_with("/", &[("host", host)]).await.text(), "new");
    }
}

#[tokio::test]
async fn a_group_is_purged() {
    let world = World::default();
    fill(&world, &["/a", "/b"]).await;
    let group = |name: &str| Purge::Group {
        origin: "http://origin.example".to_owned(),
        name: name.to_owned(),
    };
    world.handle.purge(&group("other"));
    assert!(world.get("/a").await.is_hit());
    world.handle.purge(&group("g"));
    assert!(!world.get("/a").await.is_hit());
    assert!(!world.get("/b").await.is_hit());
}

#[tokio::test]
async fn responses_in_flight_are_purged() {
    let purges = [
        Purge::Url("http://origin.example/".to_owned()),
        Purge::Prefix("http://origin".to_owned()),
        Purge::Group {
            origin: "http://origin.example".to_owned(),
            name: "g".to_owned(),
        },
    ];
    for purge in purges {
        let world = World::default();
        let held = world.origin.will_wait();
        let reader = {
            let world = world.clone();
            tokio::spawn(async move { world.get("/").await })
        };
        world.origin.reached(1).await;
        world.handle.purge(&purge);
        held.send(response(
            200,
            &[("cache-control", "max-age=60"), ("cache-groups", "\"g\"")],
            "old",
        ))
        .unwrap();
        assert_eq!(reader.await.unwrap().text(), "old");
        world.origin.will(200, &FRESH, "new");
        assert_eq!(world.get("/").await.text(), "new", "{purge:?}");
    }
}

#[tokio::test]
async fn the_counters_count() {
    let world = World::default();
    world.origin.will(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
        "hello",
    );
    world.get("/").await;
    world.get("/").await;
    world.pass(61);
    world.origin.will(304, &[], "");
    world.get("/").await;
    world.get_with("/", &[("cache-control", "max-stale")]).await;
    world.origin.will(200, &[], "");
    world
        .send(crate::support::request("OPTIONS", "/", &[]))
        .await;
    world.origin.will(200, &[], "");
    world.send(crate::support::request("PUT", "/", &[])).await;
    let metrics = world.handle.metrics();
    let counts = ["miss", "hit", "revalidated", "pass", "write"].map(|name| metrics.named(name));
    assert_eq!((counts, metrics.requests()), ([1, 2, 1, 1, 1], 6));
    assert_eq!(
        (metrics.confirmed, metrics.stored, metrics.bytes),
        (1, 1, 10)
    );
    assert_eq!(
        Invalidation::ALL.map(|cause| metrics.invalidated(cause)),
        [1, 0, 0]
    );
    assert_eq!(metrics.stored_bytes, 0);
}

#[tokio::test]
async fn request_directives_can_be_ignored() {
    let world = World::with(ifmatch_cache::Builder::ignore_request_directives);
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
    let world = World::with(ifmatch_cache::Builder::share_cookies);
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
async fn a_304_that_sets_a_cookie_is_for_one_client() {
    for method in ["GET", "HEAD"] {
        let world = World::default();
        world.origin.will(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"1\"")],
            "hello",
        );
        world.get("/").await;
        world.pass(61);
        let status = if method == "GET" { 304 } else { 200 };
        world
            .origin
            .will(status, &[("set-cookie", "c=d"), ("etag", "\"1\"")], "");
        let first = world.send(crate::support::request(method, "/", &[])).await;
        assert_eq!(first.headers["set-cookie"], "c=d");
        world.origin.will(200, &[], "once more");
        let second = world.get("/").await;
        assert_eq!(
            (second.text(), second.headers.get("set-cookie")),
            ("once more", None),
            "{method}"
        );
    }
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
async fn responses_that_vary_by_an_overwritten_field_are_not_stored() {
    let set =
        |builder: ifmatch_cache::Builder| builder.overwritten(|name| name == "x-forwarded-for");
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
async fn a_failed_revalidation_in_the_background_is_not_repeated_at_once() {
    for unreachable in [true, false] {
        let world = World::with(|builder| builder.stale_while_revalidate(Duration::from_secs(30)));
        world.origin.will(200, &FRESH, "old");
        world.get("/").await;
        world.pass(61);
        for round in 1..=2 {
            if unreachable {
                world.origin.will_fail();
            } else {
                world.origin.will(503, &[], "");
            }
            for _ in 0..5 {
                assert_eq!(world.get("/").await.text(), "old");
                settle().await;
            }
            assert_eq!(
                world.origin.count(),
                1 + round,
                "one attempt within five seconds"
            );
            world.pass(6);
        }
        world.origin.will(200, &FRESH, "new");
        world.get("/").await;
        settle().await;
        assert_eq!(
            (world.get("/").await.text(), world.origin.count()),
            ("new", 4)
        );
    }
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
    let world = World::with(ifmatch_cache::Builder::normalize_accept_encoding);
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
