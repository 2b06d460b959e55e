//! Responses from the origin, from the cache, and after a write.

use std::sync::Mutex;
use std::sync::mpsc;

use support::raw::{Connection, exchange};

use super::origin::{Origin, ok};
use super::{before, get, status};
use crate::eventually;

const FRESH: &str = "cache-control: max-age=600\r\netag: \"v1\"\r\nserver: origin/1\r\n";

#[test]
fn the_second_client_gets_the_stored_response() {
    let origin = Origin::start(|_| ok(FRESH, "hello"));
    let gateway = before(&origin, &[]);
    let miss = get(&gateway, "/a", "").expect(200);
    assert_eq!(miss.text(), "hello");
    assert!(status(&miss).contains("fwd=uri-miss"), "{miss:?}");
    let hit =
        eventually("a hit", || Some(get(&gateway, "/a", "").expect(200)).filter(|hit| status(hit).contains("; hit")));
    assert_eq!((hit.text(), hit.etag()), ("hello", "\"v1\""));
    assert!(hit.headers.contains_key("age"), "{hit:?}");

    // The cache evaluates conditions. Only conditional requests get a 304.
    let unchanged = get(&gateway, "/a", "if-none-match: \"v1\"\r\n").expect(304);
    assert_eq!((unchanged.etag(), unchanged.body.len()), ("\"v1\"", 0));
    get(&gateway, "/a", "if-none-match: \"v0\"\r\n").expect(200);
    get(&gateway, "/a", "").expect(200);
    let part = get(&gateway, "/a", "range: bytes=1-2\r\n").expect(206);
    assert_eq!((part.text(), part.header("content-range")), ("el", "bytes 1-2/5"));
    let head = {
        let mut connection = Connection::open(gateway.address());
        connection.send("HEAD /a HTTP/1.1\r\nhost: example.com\r\n\r\n");
        connection.answer_to_head().expect(200)
    };
    assert_eq!(head.header("content-length"), "5");
    assert_eq!(origin.asked().len(), 1, "{:?}", origin.asked());
}

#[test]
fn the_origin_gets_client_information() {
    let origin = Origin::start(|asked| {
        let id = if asked.head.starts_with("get /named ") { "x-request-id: of-origin\r\n" } else { "" };
        ok(&format!("{FRESH}{id}"), "hello")
    });
    let gateway = before(&origin, &[]);
    let lies = "x-forwarded-for: 1.2.3.4\r\nforwarded: for=1.2.3.4\r\nconnection: x-private\r\nx-private: 1\r\n";
    let answer = get(&gateway, "/a", lies).expect(200);
    assert_eq!(answer.header("server"), "origin/1");
    assert_eq!(answer.header("x-request-id").len(), 32, "the proxy's own");
    assert_eq!(get(&gateway, "/named", "").header("x-request-id"), "of-origin");
    // The id belongs to that request only.
    let hit =
        eventually("a hit", || Some(get(&gateway, "/named", "")).filter(|answer| status(answer).contains("; hit")));
    assert_eq!(hit.header("x-request-id").len(), 32, "{hit:?}");

    let asked = &origin.asked()[0];
    assert_eq!(asked.field("host"), Some("example.com"));
    assert_eq!(asked.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(asked.field("x-forwarded-proto"), Some("http"));
    assert_eq!(asked.field("x-forwarded-host"), Some("example.com"));
    assert_eq!((asked.field("forwarded"), asked.field("x-private")), (None, None), "{asked:?}");
    assert!(asked.field("via").unwrap().contains("ifmatch"), "{asked:?}");
}

#[test]
fn concurrent_requests_collapse_into_one() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let origin = Origin::start(move |_| {
        // Fails if the test has failed.
        let _ = released.lock().unwrap().recv();
        ok(FRESH, "hello")
    });
    let gateway = before(&origin, &[]);
    let mut clients: Vec<Connection> = (0..5).map(|_| Connection::open(gateway.address())).collect();
    for client in &mut clients {
        client.send("GET /slow HTTP/1.1\r\nhost: example.com\r\n\r\n");
    }
    // Five, and the request for the metrics.
    crate::wait_for(&gateway, "ifmatch_requests_in_flight 6");
    for _ in &clients {
        release.send(()).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.answer().expect(200).text(), "hello");
    }
    assert_eq!(origin.asked().len(), 1, "{:?}", origin.asked());
}

#[test]
fn a_write_invalidates_the_stored_response() {
    let origin = Origin::start(|asked| {
        if asked.head.starts_with("put ") { "HTTP/1.1 204 No Content\r\n\r\n".to_owned() } else { ok(FRESH, "hello") }
    });
    let gateway = before(&origin, &[]);
    get(&gateway, "/a", "").expect(200);
    eventually("a hit", || status(&get(&gateway, "/a", "")).contains("; hit").then_some(()));
    let put = "PUT /a HTTP/1.1\r\nhost: example.com\r\ncontent-length: 3\r\n\r\nnew";
    exchange(gateway.address(), put).expect(204);
    assert!(status(&get(&gateway, "/a", "").expect(200)).contains("fwd=uri-miss"));
    let asked = origin.asked();
    assert_eq!((asked.len(), asked[1].content.as_slice()), (3, b"new".as_slice()), "{asked:?}");
}

#[test]
fn private_responses_are_not_shared() {
    let origin = Origin::start(|asked| {
        let who = asked.field("authorization").unwrap_or("nobody").to_owned();
        let policy = if asked.head.contains("/private") { "private, max-age=600" } else { "max-age=600" };
        ok(&format!("cache-control: {policy}\r\n"), &who)
    });
    let gateway = before(&origin, &[]);
    for path in ["/private", "/with-credentials"] {
        for who in ["basic one", "basic two"] {
            let answer = get(&gateway, path, &format!("authorization: {who}\r\n")).expect(200);
            assert_eq!(answer.text(), who, "{path}");
        }
    }
    assert_eq!(origin.asked().len(), 4);
}

#[test]
fn a_cache_of_size_zero_is_disabled() {
    let origin = Origin::start(|_| ok(FRESH, "hello"));
    let gateway = before(&origin, &["--cache", "0"]);
    for _ in 0..2 {
        let answer = get(&gateway, "/a", "").expect(200);
        assert!(!answer.headers.contains_key("cache-status"), "{answer:?}");
    }
    exchange(gateway.address(), crate::get("/-/cache")).expect(404);
    assert_eq!(origin.asked().len(), 2);
}
