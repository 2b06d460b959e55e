//! Rules for some resources: lifetimes by status, stale use, and no caching.

use std::sync::Arc;
use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderName, StatusCode};
use ifmatch_cache::policy::resource_rules::{Lifetimes, ResourceRules};

use crate::support::{Answer, FRESH, World, request, response, settle};

const MINUTE: Duration = Duration::from_mins(1);

fn named(statuses: &[u16]) -> Lifetimes {
    statuses
        .iter()
        .map(|status| (StatusCode::from_u16(*status).unwrap(), MINUTE))
        .collect()
}

fn ttl(lifetimes: Lifetimes) -> ResourceRules {
    ResourceRules {
        ttl: lifetimes,
        ..ResourceRules::default()
    }
}

fn overriding(lifetimes: Lifetimes) -> ResourceRules {
    ResourceRules {
        override_ttl: lifetimes,
        ..ResourceRules::default()
    }
}

async fn ask(
    world: &World,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    rules: &ResourceRules,
) -> Answer {
    let mut request = request(method, path, fields);
    request.extensions_mut().insert(Arc::new(rules.clone()));
    world.send(request).await
}

/// Returns for how many seconds a response is used: none, 10 or 60.
async fn seconds(
    rules: &ResourceRules,
    asked: &[(&str, &str)],
    status: u16,
    fields: &[(&str, &str)],
) -> u64 {
    let world = World::default();
    world.origin.will(status, fields, "first");
    ask(&world, "GET", "/", asked, rules).await;
    world
        .origin
        .will_each(|_| response(200, &[("cache-control", "no-store")], "another"));
    let is_used = async |at: u64| {
        world.pass(at);
        // Only a stored response answers this, whatever it is.
        let answer = ask(
            &world,
            "GET",
            "/",
            &[("cache-control", "only-if-cached")],
            rules,
        )
        .await;
        answer.status.as_u16() != 504
    };
    match (
        is_used(0).await,
        is_used(9).await,
        is_used(1).await,
        is_used(49).await,
        is_used(1).await,
    ) {
        (false, ..) => 0,
        (true, true, false, false, false) => 10,
        (true, true, true, true, false) => 60,
        other => panic!("{status} {fields:?}: {other:?}"),
    }
}

#[tokio::test]
async fn a_lifetime_by_status_applies_where_the_origin_states_none() {
    let successes = || ttl(Lifetimes::of_successes(MINUTE));
    for (status, expected) in [
        (200, 60),
        (203, 60),
        (300, 60),
        (301, 60),
        (308, 60),
        (302, 0),
        (307, 0),
        (401, 0),
        (403, 0),
        (404, 0),
        (410, 0),
        (429, 0),
        (500, 0),
        (502, 0),
        (503, 0),
    ] {
        assert_eq!(
            seconds(&successes(), &[], status, &[]).await,
            expected,
            "{status}"
        );
    }
    for (status, expected) in [
        (404, 60),
        (503, 60),
        (302, 60),
        (410, 0),
        (200, 0),
        (500, 0),
    ] {
        assert_eq!(
            seconds(&ttl(named(&[302, 404, 503])), &[], status, &[]).await,
            expected,
            "{status}"
        );
    }
    for (fields, expected) in [
        (("cache-control", "max-age=10"), 10),
        (("cdn-cache-control", "max-age=10"), 10),
        (("cache-control", "public"), 60),
        (("cache-control", "max-age=0"), 0),
        (("expires", "0"), 0),
        (("cache-control", "private"), 0),
        (("cache-control", "no-store"), 0),
        (("cache-control", "no-cache"), 0),
        (("pragma", "no-cache"), 0),
        (("set-cookie", "a=b"), 0),
        (("vary", "*"), 0),
    ] {
        assert_eq!(
            seconds(&successes(), &[], 200, &[fields]).await,
            expected,
            "{fields:?}"
        );
    }
    for fields in [
        ("authorization", "Basic eDp5"),
        ("cookie", "a=b"),
        ("x-api-key", "a"),
    ] {
        assert_eq!(
            seconds(&successes(), &[fields], 200, &[]).await,
            0,
            "{fields:?}"
        );
    }
    let unsent = ResourceRules {
        unsent: vec![COOKIE],
        ..successes()
    };
    assert_eq!(
        seconds(&unsent, &[("cookie", "a=b")], 200, &[]).await,
        60,
        "the origin does not get it"
    );
    let unsent = ResourceRules {
        unsent: vec![HeaderName::from_static("authorization")],
        ..successes()
    };
    assert_eq!(
        seconds(&unsent, &[("authorization", "a")], 200, &[]).await,
        0,
        "RFC 9111, section 3.5"
    );
}

#[tokio::test]
async fn an_override_replaces_lifetimes_and_lifts_no_ban() {
    let successes = || overriding(Lifetimes::of_successes(MINUTE));
    for (fields, expected) in [
        (&[("cache-control", "max-age=10")][..], 60),
        (&[("cache-control", "s-maxage=10")], 60),
        (&[("cache-control", "max-age=0")], 60),
        (&[("cdn-cache-control", "max-age=10")], 60),
        (&[("expires", "0")], 60),
        (&[], 60),
        (&[("cache-control", "private, max-age=10")], 0),
        (&[("cache-control", "no-store")], 0),
        (&[("cache-control", "no-cache, max-age=10")], 0),
        (&[("set-cookie", "a=b"), ("cache-control", "max-age=10")], 0),
        (&[("set-cookie", "a=b")], 0),
        (&[("set-cookie", "a=b"), ("cache-control", "public")], 0),
        (&[("vary", "*")], 0),
    ] {
        assert_eq!(
            seconds(&successes(), &[], 200, fields).await,
            expected,
            "{fields:?}"
        );
    }
    for (status, expected) in [
        (301, 60),
        (302, 0),
        (401, 0),
        (403, 0),
        (404, 0),
        (429, 0),
        (500, 0),
        (503, 0),
    ] {
        assert_eq!(
            seconds(&successes(), &[], status, &[]).await,
            expected,
            "{status}"
        );
    }
    assert_eq!(
        seconds(&successes(), &[], 404, &[("cache-control", "max-age=10")]).await,
        10,
        "it is not named"
    );
    assert_eq!(
        seconds(
            &overriding(named(&[404])),
            &[],
            404,
            &[("cache-control", "max-age=10")]
        )
        .await,
        60
    );
    assert_eq!(
        seconds(&successes(), &[("authorization", "Basic eDp5")], 200, &[]).await,
        0
    );
    let unsent = ResourceRules {
        unsent: vec![COOKIE],
        ..successes()
    };
    assert_eq!(
        seconds(&unsent, &[("cookie", "a=b")], 200, &[]).await,
        60,
        "the origin does not get it"
    );
    let both = ResourceRules {
        ttl: named(&[200]),
        ..overriding(named(&[404]))
    };
    assert_eq!(
        seconds(&both, &[], 200, &[("cache-control", "max-age=10")]).await,
        10
    );
}

/// An override replaces a lifetime that the origin states, for all clients. It can't know if a response that states none is one client's
/// page.
#[tokio::test]
async fn an_override_shares_a_response_to_a_request_with_credentials_only_if_it_states_a_lifetime()
{
    let rules = overriding(named(&[200, 302]));
    for credential in [
        ("cookie", "sid=alice"),
        ("x-api-key", "alice"),
        ("x-auth-token", "alice"),
    ] {
        for (status, fields, expected) in [
            (200, &[][..], 0),
            (
                200,
                &[
                    ("etag", "\"1\""),
                    ("last-modified", "Sat, 01 Jan 2022 00:00:00 GMT"),
                ],
                0,
            ),
            (200, &[("cache-control", "public")], 0),
            (200, &[("cache-control", "must-revalidate")], 0),
            (302, &[], 0),
            (200, &[("cache-control", "max-age=10")], 60),
            (200, &[("cache-control", "max-age=0")], 60),
            (200, &[("expires", "0")], 60),
            (302, &[("cache-control", "max-age=10")], 60),
        ] {
            assert_eq!(
                seconds(&rules, &[credential], status, fields).await,
                expected,
                "{credential:?} {status} {fields:?}"
            );
        }
    }
    assert_eq!(
        seconds(&rules, &[], 302, &[]).await,
        60,
        "it has no credentials"
    );
    for (asked, is_shared) in [(&[][..], true), (&[("cookie", "sid=alice")], false)] {
        let world = World::with(ifmatch_cache::Builder::share_cookies);
        world
            .origin
            .will(200, &[("set-cookie", "sid=new")], "first");
        ask(&world, "GET", "/", asked, &rules).await;
        world.origin.will(200, &[], "second");
        let answer = ask(&world, "GET", "/", &[], &rules).await;
        assert_eq!(
            answer.text(),
            if is_shared { "first" } else { "second" },
            "{asked:?}"
        );
    }
}

/// Another cache in front of the origin may have kept the response for longer than the operator's lifetime.
#[tokio::test]
async fn an_operator_s_lifetime_counts_from_the_arrival() {
    let successes = || Lifetimes::of_successes(MINUTE);
    for (rules, fields, expected) in [
        (ttl(successes()), &[("age", "700")][..], 60),
        (
            overriding(successes()),
            &[("age", "700"), ("cache-control", "max-age=10")],
            60,
        ),
        (overriding(successes()), &[("age", "700")], 60),
        (
            ttl(successes()),
            &[("age", "700"), ("cache-control", "max-age=10")],
            0,
        ),
        (
            ttl(successes()),
            &[("age", "5"), ("cache-control", "max-age=15")],
            10,
        ),
    ] {
        assert_eq!(
            seconds(&rules, &[], 200, fields).await,
            expected,
            "{fields:?}"
        );
    }
}

/// A part is one of the 200, and a 304 or a HEAD renews the response by the same rules.
#[tokio::test]
async fn parts_and_confirmed_responses_have_the_same_lifetime() {
    let rules = ttl(named(&[200]));
    let world = World::default();
    world.origin.will(
        206,
        &[("content-range", "bytes 0-4/9"), ("etag", "\"1\"")],
        "hello",
    );
    let part = [("range", "bytes=0-4")];
    ask(&world, "GET", "/part", &part, &rules).await;
    assert!(ask(&world, "GET", "/part", &part, &rules).await.is_hit());
    world.origin.will(200, &[("etag", "\"1\"")], "hello");
    ask(&world, "GET", "/", &[], &rules).await;
    for (method, status) in [("GET", 304), ("HEAD", 200)] {
        world.pass(61);
        world.origin.will(status, &[("etag", "\"1\"")], "");
        ask(&world, method, "/", &[], &rules).await;
        world.pass(59);
        assert!(
            ask(&world, "GET", "/", &[], &rules).await.is_hit(),
            "{method}"
        );
    }
}

#[tokio::test]
async fn an_error_is_hidden_only_where_the_response_allows_it() {
    let hour = Duration::from_hours(1);
    for (fields, global, own, is_hidden) in [
        ("max-age=60", Duration::ZERO, Some(hour), true),
        ("max-age=60", hour, None, true),
        ("max-age=60", hour, Some(Duration::ZERO), false),
        ("max-age=60", Duration::ZERO, None, false),
        ("max-age=60, stale-if-error=1", hour, Some(hour), false),
        ("max-age=60, must-revalidate", hour, Some(hour), false),
        ("max-age=60, no-cache", hour, Some(hour), false),
        ("s-maxage=60", hour, None, true),
        ("s-maxage=60", Duration::ZERO, Some(hour), true),
        ("max-age=60, s-maxage=60", hour, Some(hour), true),
        ("s-maxage=60, must-revalidate", hour, Some(hour), false),
        ("max-age=60, proxy-revalidate", hour, Some(hour), false),
        ("max-age=0", hour, Some(hour), false),
    ] {
        let rules = ResourceRules {
            if_error: own,
            ..ResourceRules::default()
        };
        let world = World::with(|builder| builder.stale_if_error(global));
        world
            .origin
            .will(200, &[("cache-control", fields), ("etag", "\"1\"")], "good");
        ask(&world, "GET", "/", &[], &rules).await;
        world.pass(90);
        for status in [500, 503] {
            world
                .origin
                .will_each(move |_| response(status, &[], "bad"));
            let answer = ask(&world, "GET", "/", &[], &rules).await;
            assert_eq!(
                answer.text(),
                if is_hidden { "good" } else { "bad" },
                "{fields} {global:?} {own:?}"
            );
        }
        world.pass(5_000);
        assert_eq!(
            ask(&world, "GET", "/", &[], &rules).await.text(),
            "bad",
            "the time is over"
        );
    }
}

/// Frameworks set `Cache-Control` before they fail. The error neither answers a client nor replaces the good response, unless the
/// operator has given its status a lifetime.
#[tokio::test]
async fn an_error_that_states_a_lifetime_is_hidden_like_any_other() {
    let hour = Duration::from_hours(1);
    let hiding = || ResourceRules {
        if_error: Some(hour),
        ..ResourceRules::default()
    };
    let good = ("cache-control", "max-age=60");
    let future = World::default().date(6_000);
    for status in [500, 502, 503, 504] {
        for field in [
            good,
            ("cache-control", "s-maxage=60"),
            ("cache-control", "public"),
            ("cdn-cache-control", "max-age=60"),
            ("expires", &*future),
        ] {
            let world = World::default();
            world.origin.will(200, &[good], "good");
            ask(&world, "GET", "/", &[], &hiding()).await;
            world.pass(61);
            for _ in 0..3 {
                world.origin.will(status, &[field], "bad");
                assert_eq!(
                    ask(&world, "GET", "/", &[], &hiding()).await.text(),
                    "good",
                    "{status} {field:?}"
                );
                settle().await;
                world.pass(6);
            }
            world.origin.will(status, &[field], "bad");
            let forced = ask(
                &world,
                "GET",
                "/",
                &[("cache-control", "no-cache")],
                &hiding(),
            )
            .await;
            assert_eq!(
                forced.text(),
                "bad",
                "this client wants the origin's response"
            );
            world.origin.will(200, &[good], "better");
            ask(&world, "GET", "/", &[], &hiding()).await;
            settle().await;
            assert_eq!(
                ask(&world, "GET", "/", &[], &hiding()).await.text(),
                "better",
                "{status} {field:?}"
            );
        }
    }
    let by_ttl = ResourceRules {
        ttl: named(&[503]),
        ..hiding()
    };
    let by_override = ResourceRules {
        override_ttl: named(&[503]),
        ..hiding()
    };
    for rules in [by_ttl, by_override] {
        let world = World::default();
        world.origin.will(200, &[good], "good");
        ask(&world, "GET", "/", &[], &rules).await;
        world.pass(61);
        world.origin.will(503, &[good], "bad");
        assert_eq!(ask(&world, "GET", "/", &[], &rules).await.text(), "bad");
        assert!(
            ask(&world, "GET", "/", &[], &rules).await.is_hit(),
            "{rules:?}"
        );
    }
}

#[tokio::test]
async fn a_stale_response_is_used_while_it_is_revalidated_by_the_rule_of_the_resource() {
    let rules = ResourceRules {
        while_revalidate: Some(MINUTE),
        ..ttl(named(&[200]))
    };
    let world = World::default();
    world.origin.will(200, &[], "old");
    ask(&world, "GET", "/", &[], &rules).await;
    world.pass(90);
    world.origin.will(200, &[], "new");
    assert_eq!(ask(&world, "GET", "/", &[], &rules).await.text(), "old");
    settle().await;
    assert_eq!(ask(&world, "GET", "/", &[], &rules).await.text(), "new");
}

/// Nothing is looked up or stored, but a write invalidates what others stored.
#[tokio::test]
async fn a_resource_without_cache_still_invalidates() {
    let off = ResourceRules {
        is_off: true,
        ..ResourceRules::default()
    };
    let on = ResourceRules::default();
    let world = World::default();
    world.origin.will(200, &FRESH, "stored");
    ask(&world, "GET", "/", &[], &on).await;
    for at in 0..2 {
        world.origin.will(200, &FRESH, "passed");
        let answer = ask(&world, "GET", "/", &[], &off).await;
        assert_eq!(
            (answer.text(), answer.cache_status()),
            ("passed", "ifmatch; fwd=bypass"),
            "{at}"
        );
    }
    assert_eq!(
        ask(
            &world,
            "GET",
            "/",
            &[("cache-control", "only-if-cached")],
            &off
        )
        .await
        .status,
        504
    );
    assert!(ask(&world, "GET", "/", &[], &on).await.is_hit());
    world.origin.will(204, &[], "");
    ask(&world, "PUT", "/", &[], &off).await;
    world.origin.will(200, &FRESH, "written");
    assert_eq!(ask(&world, "GET", "/", &[], &on).await.text(), "written");
}
