//! Unreachable, silent and failing origins, loops, excessive requests, and invalid settings.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use ifmatch_testbed::Port;
use support::origin::{Origin, ok};
use support::raw::exchange;
use support::{Gateway, run};

use super::{before, get};

#[test]
fn an_unreachable_origin_is_502_and_a_silent_one_504() {
    let closed = Port::claim();
    let upstream = format!("http://{}", closed.address());
    let answer = get(&Gateway::start(["proxy", "--upstream", &upstream]), "/", "").expect(502);
    assert_eq!(answer.header("content-type"), "application/problem+json");

    let silent = Origin::start(|_| "");
    get(&before(&silent, &["--answer-timeout", "100ms"]), "/", "").expect(504);
    let broken = Origin::start(|_| "this is not HTTP\r\n\r\n");
    get(&before(&broken, &[]), "/", "").expect(502);
}

#[test]
fn stale_responses_replace_errors_if_the_origin_allows_it() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let origin = Origin::start(move |asked| {
        if failing.load(Ordering::SeqCst) {
            return "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_owned();
        }
        let policy = if asked.head.contains("/strict") {
            "must-revalidate"
        } else {
            "stale-if-error=600"
        };
        ok(
            &format!("cache-control: max-age=0, {policy}\r\netag: \"v1\"\r\n"),
            "hello",
        )
    });
    let gateway = before(&origin, &[]);
    for path in ["/a", "/strict"] {
        get(&gateway, path, "").expect(200);
    }
    crate::wait_for(&gateway, "ifmatch_cache_stored_total 2");
    fails.store(true, Ordering::SeqCst);
    assert_eq!(get(&gateway, "/a", "").expect(200).text(), "hello");
    get(&gateway, "/strict", "").expect(500);
    let asked = origin.asked();
    assert_eq!(asked.len(), 4, "the origin was asked first: {asked:?}");
    assert_eq!(asked[2].field("if-none-match"), Some("\"v1\""));
}

#[test]
fn misses_of_a_server_that_hangs_are_rejected_at_once_and_stale_responses_served() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = Arc::clone(&hangs);
    let origin = Origin::start(move |_| {
        if hanging.load(Ordering::SeqCst) {
            return String::new();
        }
        ok(
            "cache-control: max-age=1\r\nage: 2\r\netag: \"v1\"\r\n",
            "hello",
        )
    });
    let flags = [
        "--answer-timeout",
        "3s",
        "--breaker-failures",
        "2",
        "--breaker-pause",
        "1h",
    ];
    let gateway = before(&origin, &flags);
    get(&gateway, "/stored", "").expect(200);
    crate::wait_for(&gateway, "ifmatch_cache_stored_total 1");
    hangs.store(true, Ordering::SeqCst);
    get(&gateway, "/new", "").expect(504);
    get(&gateway, "/other", "").expect(504);
    let asked = origin.asked().len();
    let refused = get(&gateway, "/new", "").expect(503);
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=3600).contains(&seconds), "{refused:?}");
    assert_eq!(get(&gateway, "/stored", "").expect(200).text(), "hello");
    assert_eq!(origin.asked().len(), asked);
    let labels = format!(
        "route=\"/\",server=\"{}\"",
        origin.url().replace("http://", "")
    );
    crate::wait_for(
        &gateway,
        &format!("ifmatch_upstream_breaker_open{{{labels}}} 1"),
    );
    crate::wait_for(&gateway, &format!("ifmatch_upstream_healthy{{{labels}}} 0"));
}

#[test]
fn large_bodies_get_413_with_and_without_a_length() {
    let origin = Origin::start(|_| ok("", "hello"));
    let gateway = before(&origin, &["--max-body-size", "10"]);
    let with_length =
        "POST /a HTTP/1.1\r\nhost: example.com\r\ncontent-length: 11\r\n\r\n01234567890";
    exchange(gateway.address(), with_length).expect(413);
    assert_eq!(origin.asked().len(), 0);
    let chunked = "POST /a HTTP/1.1\r\nhost: example.com\r\ntransfer-encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n";
    exchange(gateway.address(), chunked).expect(413);
    let allowed = "POST /a HTTP/1.1\r\nhost: example.com\r\ncontent-length: 10\r\n\r\n0123456789";
    exchange(gateway.address(), allowed).expect(200);
}

#[test]
fn max_forwards_0_is_not_forwarded() {
    let origin = Origin::start(|_| ok("", "hello"));
    let gateway = before(&origin, &[]);
    let options = |most: u8| {
        format!("OPTIONS / HTTP/1.1\r\nhost: example.com\r\nmax-forwards: {most}\r\n\r\n")
    };
    exchange(gateway.address(), options(0)).expect(501);
    assert_eq!(origin.asked().len(), 0);
    exchange(gateway.address(), options(1)).expect(200);
    assert_eq!(origin.asked()[0].field("max-forwards"), Some("0"));
}

#[test]
fn storage_flags_are_rejected_and_an_upstream_is_required() {
    for (args, expected) in [
        (
            &["--data", "d", "--upstream", "http://a"][..],
            "--data is for `ifmatch serve`",
        ),
        (
            &["--store", "memory://", "--upstream", "http://a"],
            "--store is for `ifmatch serve`",
        ),
        (&[], "--upstream http://127.0.0.1:8000"),
        (
            &["--upstream", "ftp://a"],
            "'ftp://a' is not a valid upstream",
        ),
    ] {
        let end = run(["proxy"].iter().chain(args));
        assert_eq!(end.status.code(), Some(2), "{end:#?}");
        assert!(
            end.stderr.contains(expected),
            "{expected:?} is missing in {end:#?}"
        );
    }
    let help = run(["proxy", "--help"]).stdout;
    assert!(
        help.contains("ifmatch proxy --upstream http://127.0.0.1:8000") && !help.contains("--data"),
        "{help}"
    );
}

/// A relay to a gateway that is started later.
struct Relay {
    from: SocketAddr,
    to: Arc<OnceLock<SocketAddr>>,
}

impl Relay {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (from, to) = (
            listener.local_addr().unwrap(),
            Arc::<OnceLock<SocketAddr>>::default(),
        );
        let known = Arc::clone(&to);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(known.wait()).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (mut from, mut to) in [(client, server), back] {
                    thread::spawn(move || io::copy(&mut from, &mut to));
                }
            }
        });
        Self { from, to }
    }

    /// Starts a proxy in front of it.
    fn proxy(&self) -> Gateway {
        Gateway::start(["proxy", "--upstream", &format!("http://{}", self.from)])
    }

    fn leads_to(&self, gateway: &Gateway) {
        self.to.set(gateway.address()).unwrap();
    }
}

#[test]
fn loops_of_two_proxies_are_rejected_and_chains_are_not() {
    let (there, back) = (Relay::open(), Relay::open());
    let (first, second) = (there.proxy(), back.proxy());
    there.leads_to(&second);
    back.leads_to(&first);
    get(&first, "/a", "").expect(508);

    let origin = Origin::start(|_| ok("cache-control: max-age=600\r\n", "hello"));
    let inner = before(&origin, &[]);
    let relay = Relay::open();
    let outer = relay.proxy();
    relay.leads_to(&inner);
    assert_eq!(get(&outer, "/a", "").expect(200).text(), "hello");
    let asked = origin.asked();
    let via = asked[0]
        .head
        .lines()
        .filter(|line| line.starts_with("via: "))
        .collect::<Vec<_>>();
    assert_eq!(via.concat().matches("ifmatch-").count(), 2, "{via:?}");
}
