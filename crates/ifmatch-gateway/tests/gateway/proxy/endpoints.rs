//! The proxy's own endpoints: counters, and purging.

use support::origin::{Origin, ok};
use support::raw::exchange;
use support::{Answer, Gateway};

use super::{before, get, status, store};

fn origin() -> Origin {
    Origin::start(|_| ok("cache-control: max-age=600\r\n", "hello"))
}

fn delete(gateway: &Gateway, path: &str, fields: &str) -> Answer {
    exchange(
        gateway.address(),
        format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"),
    )
}

#[test]
fn the_404_of_an_unknown_endpoint_lists_the_others() {
    for (flags, has_cache) in [(&[][..], true), (&["--cache", "0"], false)] {
        let gateway = before(&origin(), flags);
        let answer = exchange(gateway.address(), crate::get("/-/none")).expect(404);
        assert_eq!(answer.text().contains("/-/cache"), has_cache, "{flags:?}");
    }
}

#[test]
fn the_log_contains_the_cache_status() {
    let inner = "cache-status: inner; hit\r\n";
    let origin =
        Origin::start(move |_| ok(&format!("cache-control: max-age=600\r\n{inner}"), "hello"));
    let mut gateway = before(&origin, &["--access-log", "--log-format", "json"]);
    get(&gateway, "/a", "").expect(200);
    store(&gateway, "/a");
    let log = gateway.stop().stderr;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let statuses: Vec<String> = lines
        .filter_map(|line| Some(line["cache_status"].as_str()?.to_owned()))
        .collect();
    assert!(
        statuses
            .first()
            .is_some_and(|first| first.starts_with("ifmatch; fwd=uri-miss")),
        "{log}"
    );
    assert!(
        statuses
            .last()
            .is_some_and(|last| last.starts_with("ifmatch; hit; ttl=")),
        "{log}"
    );
}

/// A look-up says why a URL isn't cached, and what is stored for one that is.
#[test]
fn a_look_up_explains_what_is_cached() {
    let origin = Origin::start(|request| {
        let is_private = request.head.contains("/private");
        let shared = "cache-control: max-age=600\r\netag: \"a\"\r\ncache-groups: \"g\"\r\n";
        ok(
            if is_private {
                "cache-control: private\r\n"
            } else {
                shared
            },
            "hello",
        )
    });
    let gateway = before(&origin, &[]);
    let look_up = |path: &str| {
        let request = format!(
            "GET /-/cache?url=http://example.com{path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
        exchange(gateway.address(), request).expect(200).json()
    };
    let unknown = look_up("/a");
    assert!(
        unknown["stored"] == serde_json::json!([]) && unknown["not_stored"].is_null(),
        "{unknown}"
    );
    store(&gateway, "/a");
    let found = look_up("/a")["stored"][0].clone();
    assert!(
        found["fresh"] == true && found["lifetime"] == 600 && found["tag"] == "\"a\"",
        "{found}"
    );
    assert_eq!(found["groups"], serde_json::json!(["g"]));
    get(&gateway, "/private", "").expect(200);
    let refused = look_up("/private");
    assert_eq!(
        refused["not_stored"],
        serde_json::json!({ "outcome": "pass", "reason": "private" })
    );
    delete(&gateway, "/-/cache?url=http://example.com/a", "").expect(200);
    assert_eq!(look_up("/a")["stored"], serde_json::json!([]));
    exchange(
        gateway.address(),
        "GET /-/cache?uri=x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    )
    .expect(400);
}

#[test]
fn the_log_has_the_server_that_answered() {
    let busy = Origin::start(|_| "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
    let well = Origin::start(|_| ok("cache-control: max-age=600\r\n", "hello"));
    let upstream = format!("{},{}", busy.url(), well.url());
    let mut gateway = Gateway::start([
        "proxy",
        "--upstream",
        &upstream,
        "--access-log",
        "--log-format",
        "json",
    ]);
    get(&gateway, "/a", "").expect(200);
    store(&gateway, "/a");
    exchange(
        gateway.address(),
        "POST /b HTTP/1.1\r\nhost: example.com\r\ncontent-length: 0\r\n\r\n",
    );
    let log = gateway.stop().stderr;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let lines: Vec<_> = lines.filter(|line| line["path"].is_string()).collect();
    let server = well.url().replace("http://", "");
    let first = lines.first().expect("a line");
    assert_eq!(
        (&first["upstream"], &first["upstream_status"]),
        (&server.into(), &200.into()),
        "{log}"
    );
    assert!(
        first["upstream_us"].is_u64() && first["host"] == "example.com",
        "{log}"
    );
    let hit = lines.iter().find(|line| {
        line["cache_status"]
            .as_str()
            .is_some_and(|status| status.contains("; hit"))
    });
    assert!(hit.is_some_and(|hit| hit["upstream"].is_null()), "{log}");
    let write = lines.last().expect("a line");
    assert!(
        write["method"] == "POST" && write["upstream_status"].is_u64(),
        "{log}"
    );
}

#[test]
fn the_log_trusts_client_information_only_by_a_flag() {
    let origin = origin();
    for (flags, expected) in [
        (&["--access-log"][..], false),
        (&["--access-log", "--trust-forwarded"], true),
    ] {
        let mut gateway = before(&origin, flags);
        get(
            &gateway,
            "/a",
            "x-forwarded-for: 192.0.2.7\r\nx-forwarded-for: 198.51.100.\u{9b}1\r\n",
        )
        .expect(200);
        let log = gateway.stop().stderr;
        let line = log
            .lines()
            .find(|line| line.contains("path=/a"))
            .expect("a line for the request");
        assert!(line.contains("client=127.0.0.1:"), "{line}");
        assert_eq!(
            line.contains(r#"forwarded_for="192.0.2.7,198.51.100.%C2%9B1""#),
            expected,
            "{line}"
        );
        assert_eq!(line.contains("192.0.2.7"), expected, "{line}");
    }
}

#[test]
fn a_purge_removes_the_selected_responses_only() {
    let (origin, everything) = (origin(), "/-/cache?prefix=");
    let gateway = before(&origin, &[]);
    for path in ["/a/1", "/a/2", "/b"] {
        store(&gateway, path);
    }
    let purged = delete(&gateway, "/-/cache?url=http://example.com/a/1", "").expect(200);
    assert_eq!(purged.json()["purged"], 1);
    assert!(status(&get(&gateway, "/a/1", "")).contains("fwd=uri-miss"));
    assert!(status(&get(&gateway, "/a/2", "")).contains("; hit"));
    store(&gateway, "/a/1");
    assert_eq!(
        delete(&gateway, "/-/cache?prefix=http://example.com/a/", "")
            .expect(200)
            .json()["purged"],
        2
    );
    assert!(status(&get(&gateway, "/b", "")).contains("; hit"));
    assert_eq!(
        delete(&gateway, everything, "").expect(200).json()["purged"],
        1
    );
    assert!(status(&get(&gateway, "/b", "")).contains("fwd=uri-miss"));
    delete(&gateway, "/-/cache", "").expect(400);
    delete(&gateway, "/-/cache?url=a&prefix=b", "").expect(400);
    // A purge or a look-up of what can be no URL would say that it found nothing.
    for what in [
        "prefix=products",
        "prefix=/products/",
        "url=x",
        "url=products/1",
        "group=g&origin=shop.example",
    ] {
        let refused = delete(&gateway, &format!("/-/cache?{what}"), "").expect(400);
        assert_eq!(
            refused.header("content-type"),
            "application/problem+json",
            "{what}"
        );
        assert!(
            refused.text().contains("https://shop.example/products/"),
            "{what}: {}",
            refused.text()
        );
        delete(
            &gateway,
            &format!("/-/cache?{what}&local=true&soft=true"),
            "",
        )
        .expect(400);
    }
    exchange(
        gateway.address(),
        "GET /-/cache?url=x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    )
    .expect(400);
    assert!(
        origin
            .asked()
            .iter()
            .all(|asked| asked.head.starts_with("get /")),
        "{:?}",
        origin.asked()
    );
}

#[test]
fn a_group_of_an_origin_is_purged_together() {
    let origin = Origin::start(|asked| {
        let groups = if asked.head.starts_with("get /in") {
            "cache-groups: \"news\", \"all\"\r\n"
        } else {
            ""
        };
        ok(&format!("cache-control: max-age=600\r\n{groups}"), "hello")
    });
    let gateway = before(&origin, &[]);
    for path in ["/in/1", "/in/2", "/out"] {
        store(&gateway, path);
    }
    delete(
        &gateway,
        "/-/cache?group=news&origin=http://other.example",
        "",
    )
    .expect(200);
    assert!(status(&get(&gateway, "/in/1", "")).contains("; hit"));
    delete(
        &gateway,
        "/-/cache?group=news&origin=http://example.com",
        "",
    )
    .expect(200);
    for path in ["/in/1", "/in/2"] {
        assert!(status(&get(&gateway, path, "")).contains("fwd="), "{path}");
    }
    assert!(status(&get(&gateway, "/out", "")).contains("; hit"));
    store(&gateway, "/in/1");
}

#[test]
fn surrogate_keys_and_cache_tags_are_groups_and_too_many_are_never_fresh() {
    let many = "k ".repeat(1025);
    let origin = Origin::start(move |asked| {
        let groups = match asked.head.split_whitespace().nth(1) {
            Some("/key") => "surrogate-key: home news-1\r\n",
            Some("/tag") => "cache-tag: home,news-2\r\n",
            _ => &format!("surrogate-key: {many}\r\n"),
        };
        ok(&format!("cache-control: max-age=600\r\n{groups}"), "hello")
    });
    let gateway = before(&origin, &[]);
    let purge = |name: &str| {
        delete(
            &gateway,
            &format!("/-/cache?group={name}&origin=http://example.com"),
            "",
        )
        .expect(200);
    };
    for (name, gone) in [
        ("news-1", &["/key"][..]),
        ("news-2", &["/tag"]),
        ("home", &["/key", "/tag"]),
    ] {
        for path in ["/key", "/tag"] {
            store(&gateway, path);
        }
        purge(name);
        for path in ["/key", "/tag"] {
            assert_eq!(
                status(&get(&gateway, path, "")).contains("; hit"),
                !gone.contains(&path),
                "{name} {path}"
            );
        }
    }
    get(&gateway, "/many", "").expect(200);
    assert!(!status(&get(&gateway, "/many", "").expect(200)).contains("; hit"));
}

#[test]
fn the_method_purge_removes_a_url_for_those_who_may_write() {
    let origin = origin();
    let gateway = before(
        &origin,
        &["--read-token", "reader", "--write-token", "writer"],
    );
    let purge = |path: &str, fields: &str| {
        exchange(
            gateway.address(),
            format!("PURGE {path} HTTP/1.1\r\nhost: example.com\r\n{fields}\r\n"),
        )
    };
    for path in ["/a?x=1", "/b"] {
        store(&gateway, path);
    }
    purge("/a?x=1", "").expect(401);
    purge("/a?x=1", "authorization: Bearer reader\r\n").expect(403);
    assert!(status(&get(&gateway, "/a?x=1", "")).contains("; hit"));
    let purged = purge("/a?x=1", "authorization: Bearer writer\r\n").expect(200);
    assert_eq!(purged.json()["purged"], 1);
    assert!(status(&get(&gateway, "/a?x=1", "")).contains("fwd=uri-miss"));
    assert!(status(&get(&gateway, "/b", "")).contains("; hit"));
    assert!(
        origin
            .asked()
            .iter()
            .all(|asked| asked.head.starts_with("get /")),
        "{:?}",
        origin.asked()
    );
}

#[test]
fn a_soft_purge_makes_responses_stale() {
    let origin = Origin::start(|_| {
        ok(
            "cache-control: max-age=600, stale-if-error=600\r\netag: \"1\"\r\ncache-groups: \"g\"\r\n",
            "hello",
        )
    });
    let gateway = before(&origin, &[]);
    for selection in [
        "url=http://example.com/a",
        "prefix=http://example.com/",
        "group=g&origin=http://example.com",
    ] {
        store(&gateway, "/a");
        let asked = origin.asked().len();
        let path = format!("/-/cache?{selection}&soft=true");
        assert_eq!(
            delete(&gateway, &path, "").expect(200).json()["purged"],
            1,
            "{selection}"
        );
        assert!(
            status(&get(&gateway, "/a", "")).contains("fwd=stale"),
            "{selection}"
        );
        let asked = origin.asked().split_off(asked);
        assert!(
            asked
                .iter()
                .all(|asked| asked.head.contains("if-none-match: \"1\"")),
            "{asked:?}"
        );
        delete(&gateway, &format!("/-/cache?{selection}&soft=yes"), "").expect(400);
    }
}

#[test]
fn purging_needs_a_write_token_and_forwarding_none() {
    let origin = origin();
    let gateway = before(
        &origin,
        &["--read-token", "reader", "--write-token", "writer"],
    );
    store(&gateway, "/a");
    let everything = "/-/cache?prefix=";
    delete(&gateway, everything, "").expect(401);
    delete(&gateway, everything, "authorization: Bearer reader\r\n").expect(403);
    assert!(status(&get(&gateway, "/a", "")).contains("; hit"));
    get(&gateway, "/-/cache", "").expect(401);
    get(&gateway, "/-/cache", "authorization: Bearer reader\r\n").expect(200);
    assert_eq!(
        delete(&gateway, everything, "authorization: Bearer writer\r\n")
            .expect(200)
            .json()["purged"],
        1
    );
}

#[test]
fn without_tokens_endpoints_are_available_on_loopback_only() {
    let origin = origin();
    let gateway = before(&origin, &["--listen", "0.0.0.0:0"]);
    get(&gateway, "/a", "").expect(200);
    delete(&gateway, "/-/cache?prefix=", "").expect(401);
    for path in ["/-/cache", "/-/metrics"] {
        get(&gateway, path, "").expect(401);
    }
    get(&gateway, "/-/health", "").expect(200);
}

#[test]
fn the_metrics_include_the_cache() {
    let origin = origin();
    let gateway = before(&origin, &[]);
    get(&gateway, "/a", "").expect(200);
    crate::wait_for(&gateway, "ifmatch_cache_stored_total 1");
    get(&gateway, "/a", "").expect(200);
    exchange(
        gateway.address(),
        "OPTIONS /a HTTP/1.1\r\nhost: example.com\r\n\r\n",
    )
    .expect(200);
    for line in [
        "ifmatch_cache_requests_total{outcome=\"hit\",reason=\"fresh\"} 1",
        "ifmatch_cache_requests_total{outcome=\"miss\",reason=\"uri\"} 1",
        "ifmatch_cache_requests_total{outcome=\"pass\",reason=\"method\"} 1",
        "ifmatch_cache_answered_bytes_total 5",
    ] {
        crate::wait_for(&gateway, line);
    }
    let counters = exchange(gateway.address(), crate::get("/-/cache"))
        .expect(200)
        .json();
    let requests = &counters["requests"];
    assert_eq!(
        (&requests["hit"]["fresh"], &requests["miss"]["uri"]),
        (&1.into(), &1.into()),
        "{counters}"
    );
    exchange(gateway.address(), crate::get("/-/leases")).expect(404);
}
