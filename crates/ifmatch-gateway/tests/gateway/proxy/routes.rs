//! Routes of the file, and the selection of upstreams.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ifmatch_testbed::Port;
use support::origin::{Origin, ok};
use support::raw::exchange;
use support::{Answer, Gateway};

use super::{get, is_hit};
use crate::eventually;

/// Starts a proxy with these routes.
fn start(routes: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, routes).unwrap();
    Gateway::start(["proxy", "--config", file.to_str().unwrap()])
}

fn ask(gateway: &Gateway, host: &str, path: &str, fields: &str) -> Answer {
    exchange(
        gateway.address(),
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"),
    )
}

#[test]
fn a_route_strips_its_prefix_and_changes_fields_of_both_messages() {
    let origin = Origin::start(|_| {
        ok(
            "cache-control: no-store\r\nx-powered-by: a\r\nx_powered_by: b\r\nset-cookie: c=1\r\netag: \"1\"\r\n",
            "hello",
        )
    });
    let gateway = start(&format!(
        "[[proxy.route]]\nmatch = '/app'\nupstream = ['{}/base']\nstrip-prefix = true\n\
         request-headers = {{ remove = ['Cookie'], set = {{ X-Site = 'shop' }}, add = {{ Accept-Language = 'en' }} }}\n\
         response-headers = {{ remove = ['X-Powered-By', 'Set-Cookie'], set = {{ Cache-Control = 'max-age=600' }} }}\n",
        origin.url()
    ));
    // A client can neither set the field in another spelling, nor remove it as an option of its connection.
    let fields = "cookie: a=1\r\nx_site: evil\r\nx-site: evil\r\nconnection: x-site\r\nx-forwarded-prefix: /evil\r\n";
    let first = ask(&gateway, "a.example", "/app/page?x", fields).expect(200);
    assert_eq!(
        (first.header("cache-control"), first.etag()),
        ("max-age=600", "\"1\"")
    );
    for name in ["x-powered-by", "x_powered_by", "set-cookie"] {
        assert!(!first.headers.contains_key(name), "{first:?}");
    }
    let asked = &origin.asked()[0];
    assert!(
        asked.head.starts_with("get /base/page?x http/1.1\r\n"),
        "{}",
        asked.head
    );
    for (name, value) in [
        ("x-site", Some("shop")),
        ("x_site", None),
        ("cookie", None),
        ("accept-language", Some("en")),
        ("x-forwarded-prefix", Some("/app")),
        ("host", Some("a.example")),
    ] {
        assert_eq!(asked.field(name), value, "{name}: {}", asked.head);
    }
    // The cache decides by the changed response.
    eventually("a hit", || {
        is_hit(&ask(&gateway, "a.example", "/app/page?x", "")).then_some(())
    });
    ask(&gateway, "a.example", "/other", "").expect(404);
}

#[test]
fn a_write_below_a_stripped_prefix_invalidates_what_its_location_names() {
    let origin = Origin::start(|asked| {
        if asked.head.starts_with("post") {
            let location = "HTTP/1.1 201 Created\r\nlocation: /base/list?all\r\ncontent-location: /base/entry\r\n";
            return format!("{location}content-length: 0\r\n\r\n");
        }
        ok("cache-control: max-age=600\r\n", "hello")
    });
    let gateway = start(&format!(
        "[[proxy.route]]\nmatch = '/app'\nupstream = ['{}/base']\nstrip-prefix = true\n",
        origin.url()
    ));
    for path in ["/app/list?all", "/app/entry", "/app/other"] {
        ask(&gateway, "a.example", path, "").expect(200);
        eventually("a hit", || {
            is_hit(&ask(&gateway, "a.example", path, "")).then_some(())
        });
    }
    let post = "POST /app/new HTTP/1.1\r\nhost: a.example\r\ncontent-length: 0\r\n\r\n";
    let created = exchange(gateway.address(), post).expect(201);
    assert_eq!(
        (
            created.header("location"),
            created.header("content-location")
        ),
        ("/app/list?all", "/app/entry")
    );
    for (path, is_kept) in [
        ("/app/list?all", false),
        ("/app/entry", false),
        ("/app/other", true),
    ] {
        assert_eq!(
            is_hit(&ask(&gateway, "a.example", path, "")),
            is_kept,
            "{path}"
        );
    }
}

#[test]
fn a_route_redirects_without_being_cached() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    let write = |target: &str| {
        let route = "[[proxy.route]]\nmatch = 'old.example'\nresponse-headers.set.Cache-Control = 'max-age=600'\n";
        fs::write(&file, format!("{route}redirect = '{target}'\n")).unwrap();
    };
    write("https://new.example{path}");
    let gateway = Gateway::start(["proxy", "--config", file.to_str().unwrap()]);
    for path in ["/a?b=c", "//evil.example/", "/"] {
        let moved = ask(&gateway, "old.example", path, "").expect(308);
        assert_eq!(
            moved.header("location"),
            format!("https://new.example{path}")
        );
        assert_eq!(
            (moved.header("cache-control"), moved.text()),
            ("max-age=600", "")
        );
    }
    ask(&gateway, "other.example", "/", "").expect(404);
    write("https://newer.example/");
    gateway.hang_up();
    eventually("the new target", || {
        (ask(&gateway, "old.example", "/a?b=c", "").header("location") == "https://newer.example/")
            .then_some(())
    });
}

/// The cache sees the field, so a purge of the group holds. No client sees it, of a stored response or of a new one.
#[test]
fn a_hidden_field_still_names_the_groups_of_a_purge() {
    let origin = Origin::start(|_| {
        ok(
            "cache-control: max-age=600\r\nsurrogate-key: post-1\r\netag: \"1\"\r\n",
            "hello",
        )
    });
    let gateway = start(&format!(
        "[[proxy.route]]\nmatch = 'a.example'\nupstream = ['{0}']\nresponse-headers.hide = ['Surrogate-Key']\n\
         [[proxy.route]]\nmatch = 'b.example'\nupstream = ['{0}']\n",
        origin.url()
    ));
    let answers =
        ["", "", "if-none-match: \"1\"\r\n"].map(|fields| ask(&gateway, "a.example", "/", fields));
    assert_eq!(
        answers.each_ref().map(|answer| answer.status.as_u16()),
        [200, 200, 304]
    );
    assert!(is_hit(&answers[1]), "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|answer| !answer.headers.contains_key("surrogate-key")),
        "{answers:?}"
    );
    assert_eq!(
        ask(&gateway, "b.example", "/", "").header("surrogate-key"),
        "post-1"
    );
    let purge =
        "DELETE /-/cache?group=post-1&origin=http://a.example HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(
        exchange(gateway.address(), purge).expect(200).json()["purged"],
        1
    );
    assert!(!is_hit(&ask(&gateway, "a.example", "/", "")));
}

/// The upstream doesn't get the cookie, so its response belongs to no client, and may have a lifetime by a guess or by a rule.
#[test]
fn a_cookie_that_the_route_removes_rules_out_no_lifetime() {
    let origin = Origin::start(|_| ok("last-modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n", "hello"));
    let gateway = start(&format!(
        "[[proxy.route]]\nmatch = 'a.example'\nupstream = ['{0}']\nrequest-headers.remove = ['Cookie']\n\
         [[proxy.route]]\nmatch = 'b.example'\nupstream = ['{0}']\nrequest-headers.set.Cookie = 'site=1'\n\
         [[proxy.route]]\nmatch = 'c.example'\nupstream = ['{0}']\nrequest-headers.remove = ['X-Site']\n",
        origin.url()
    ));
    for (host, is_stored) in [
        ("a.example", true),
        ("b.example", true),
        ("c.example", false),
    ] {
        let answers =
            [(); 2].map(|()| ask(&gateway, host, "/", "cookie: visitor=1\r\n").expect(200));
        assert_eq!(is_hit(&answers[1]), is_stored, "{host}: {answers:?}");
    }
}

fn named(name: &'static str) -> Origin {
    Origin::start(move |_| ok("cache-control: max-age=600\r\n", name))
}

#[test]
fn the_most_specific_route_wins_and_has_its_own_responses() {
    let (any, api, images) = (named("any"), named("api"), named("images"));
    let flags = [
        format!("--upstream={}", any.url()),
        format!("--route=/api={}", api.url()),
        format!("--route=images.example/large={}", images.url()),
    ];
    let gateway = Gateway::start(["proxy".to_owned()].iter().chain(&flags));
    let ask = |host: &str, path: &str| {
        exchange(
            gateway.address(),
            format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        )
        .expect(200)
        .text()
        .to_owned()
    };
    // The second response comes from the cache.
    for _ in 0..2 {
        assert_eq!(ask("a.example", "/"), "any");
        assert_eq!(ask("a.example", "/api/x"), "api");
        assert_eq!(ask("a.example", "/apiary"), "any");
        assert_eq!(ask("images.example", "/large/x"), "images");
        assert_eq!(ask("images.example", "/small/x"), "any");
        assert_eq!(ask("a.example", "/large/x"), "any");
    }
    let counts = [&any, &api, &images].map(|origin| origin.asked().len());
    assert_eq!(counts, [4, 1, 1]);

    let only = Gateway::start(["proxy", &format!("--route=a.example={}", any.url())]);
    exchange(only.address(), "GET / HTTP/1.1\r\nhost: b.example\r\n\r\n").expect(404);
}

#[test]
fn unhealthy_servers_get_no_requests_until_they_recover() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let sick = Origin::start(move |asked| {
        if asked.head.starts_with("get /health ") && !is_well.load(Ordering::SeqCst) {
            return "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned();
        }
        ok("cache-control: no-store\r\n", "sick")
    });
    let other = Origin::start(|_| ok("cache-control: no-store\r\n", "other"));
    let upstreams = format!("{},{}", sick.url(), other.url());
    let gateway = Gateway::start([
        "proxy",
        "--upstream",
        &upstreams,
        "--health-path",
        "/health",
        "--health-interval",
        "50ms",
    ]);
    let answers = || {
        (0..4)
            .map(|_| get(&gateway, "/page", "").expect(200).text().to_owned())
            .collect::<Vec<_>>()
    };
    eventually("only the other one", || {
        answers()
            .iter()
            .all(|answer| answer == "other")
            .then_some(())
    });
    well.store(true, Ordering::SeqCst);
    eventually("both", || {
        answers()
            .iter()
            .any(|answer| answer == "sick")
            .then_some(())
    });
}

#[test]
fn upstreams_are_measured() {
    let origin = Origin::start(|asked| {
        let missing = asked.head.starts_with("get /missing ");
        if asked.head.starts_with("get /broken ") {
            "nonsense\r\n\r\n".to_owned()
        } else if missing {
            "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            ok("cache-control: no-store\r\n", "hello")
        }
    });
    let closed = Port::claim();
    let flags = [
        format!("--upstream={}", origin.url()),
        format!("--route=/closed=http://{}", closed.address()),
    ];
    let gateway = Gateway::start(["proxy".to_owned()].iter().chain(&flags));
    for (path, status) in [
        ("/", 200),
        ("/", 200),
        ("/missing", 404),
        ("/broken", 502),
        ("/closed", 502),
    ] {
        get(&gateway, path, "").expect(status);
    }
    let server = origin.url().replace("http://", "");
    let labels = format!("route=\"/\",server=\"{server}\"");
    let closed = format!("route=\"/closed\",server=\"{}\"", closed.address());
    for line in [
        format!("ifmatch_upstream_responses_total{{{labels},status=\"2xx\"}} 2"),
        format!("ifmatch_upstream_responses_total{{{labels},status=\"4xx\"}} 1"),
        format!("ifmatch_upstream_response_seconds_count{{{labels}}} 3"),
        // A GET is repeated once.
        format!("ifmatch_upstream_errors_total{{{labels},kind=\"broken\"}} 2"),
        format!("ifmatch_upstream_errors_total{{{closed},kind=\"unreachable\"}} 1"),
        format!("ifmatch_upstream_healthy{{{labels}}} 1"),
        format!("ifmatch_upstream_healthy{{{closed}}} 0"),
        format!("ifmatch_upstream_requests_in_flight{{{labels}}} 0"),
        "ifmatch_upstream_requests_waiting{route=\"/\"} 0".to_owned(),
        "ifmatch_upstream_rejected_total{route=\"/\",reason=\"full\"} 0".to_owned(),
        "ifmatch_upstream_rejected_total{route=\"/\",reason=\"hanging\"} 0".to_owned(),
    ] {
        crate::wait_for(&gateway, &line);
    }
}
