//! Selection of upstreams by host and path, in turns, and by health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ifmatch_testbed::Port;
use support::Gateway;
use support::raw::exchange;

use super::get;
use super::origin::{Origin, ok};
use crate::eventually;

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
        exchange(gateway.address(), format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
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
    let gateway =
        Gateway::start(["proxy", "--upstream", &upstreams, "--health-path", "/health", "--health-interval", "50ms"]);
    let answers = || (0..4).map(|_| get(&gateway, "/page", "").expect(200).text().to_owned()).collect::<Vec<_>>();
    eventually("only the other one", || answers().iter().all(|answer| answer == "other").then_some(()));
    well.store(true, Ordering::SeqCst);
    eventually("both", || answers().iter().any(|answer| answer == "sick").then_some(()));
}

#[test]
fn requests_follow_the_weights_and_backups_get_none() {
    let origins =
        ["heavy", "light", "backup"].map(|name| Origin::start(move |_| ok("cache-control: no-store\r\n", name)));
    let [heavy, light, backup] = &origins;
    let upstreams = format!("{} weight=3,{},{} backup", heavy.url(), light.url(), backup.url());
    let gateway = Gateway::start(["proxy", "--upstream", &upstreams]);
    for _ in 0..8 {
        get(&gateway, "/", "").expect(200);
    }
    assert_eq!(origins.map(|origin| origin.asked().len()), [6, 2, 0]);
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
    let flags = [format!("--upstream={}", origin.url()), format!("--route=/closed=http://{}", closed.address())];
    let gateway = Gateway::start(["proxy".to_owned()].iter().chain(&flags));
    for (path, status) in [("/", 200), ("/", 200), ("/missing", 404), ("/broken", 502), ("/closed", 502)] {
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
