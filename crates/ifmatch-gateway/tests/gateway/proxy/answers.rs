//! Responses: from the origin and the cache, interim ones, upgrades, and false or malformed messages.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::Gateway;
use support::origin::{Origin, ok};
use support::raw::{self, Case, Connection, exchange};

use super::encrypted::hinting;
use super::{before, get, is_hit, status};
use crate::eventually;

const FRESH: &str = "cache-control: max-age=600\r\netag: \"v1\"\r\nserver: origin/1\r\n";

#[test]
fn the_second_client_gets_the_stored_response() {
    let origin = Origin::start(|_| ok(FRESH, "hello"));
    let gateway = before(&origin, &[]);
    let miss = get(&gateway, "/a", "").expect(200);
    assert_eq!(miss.text(), "hello");
    assert!(status(&miss).contains("fwd=uri-miss"), "{miss:?}");
    let hit = eventually("a hit", || {
        Some(get(&gateway, "/a", "").expect(200)).filter(|hit| status(hit).contains("; hit"))
    });
    assert_eq!((hit.text(), hit.etag()), ("hello", "\"v1\""));
    assert!(hit.headers.contains_key("age"), "{hit:?}");

    // The cache evaluates conditions. Only conditional requests get a 304.
    let unchanged = get(&gateway, "/a", "if-none-match: \"v1\"\r\n").expect(304);
    assert_eq!((unchanged.etag(), unchanged.body.len()), ("\"v1\"", 0));
    get(&gateway, "/a", "if-none-match: \"v0\"\r\n").expect(200);
    get(&gateway, "/a", "").expect(200);
    let part = get(&gateway, "/a", "range: bytes=1-2\r\n").expect(206);
    assert_eq!(
        (part.text(), part.header("content-range")),
        ("el", "bytes 1-2/5")
    );
    let head = {
        let mut connection = Connection::open(gateway.address());
        connection.send("HEAD /a HTTP/1.1\r\nhost: example.com\r\n\r\n");
        connection.answer_to_head().expect(200)
    };
    assert_eq!(head.header("content-length"), "5");
    assert_eq!(origin.asked().len(), 1, "{:?}", origin.asked());
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

#[test]
fn a_client_of_http_1_0_gets_no_interim_response() {
    let (origin, release) = hinting("content-length: 100\r\ntrailer: x\r\n");
    let gateway = before(&origin, &[]);
    let mut client = Connection::open(gateway.address());
    client.send("GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    release.send(()).unwrap();
    assert_eq!(client.answer().expect(200).text(), "hello");
}

/// A response has the version of the connection it is sent on (RFC 9110 §6.2).
#[test]
fn a_client_of_http_1_1_gets_that_version_from_any_origin() {
    let origin = Origin::start(|_| "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    for flags in [&[][..], &["--cache", "0"]] {
        let gateway = before(&origin, flags);
        let mut client = Connection::open(gateway.address());
        client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let answer = client.rest();
        assert!(
            answer.starts_with(b"HTTP/1.1 200 OK\r\n"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}

/// Accepts an upgrade, and then echoes everything in upper case.
fn shouter() -> Origin {
    Origin::converse(|asked, stream| {
        assert_eq!(
            (asked.field("upgrade"), asked.field("connection")),
            (Some("shout"), Some("upgrade")),
            "{asked:?}"
        );
        let agreed =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
        stream.write_all(agreed.as_bytes()).unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream
                .write_all(&buffer[..count].to_ascii_uppercase())
                .unwrap();
        }
    })
}

const UPGRADE: &str =
    "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: shout\r\n\r\n";

#[test]
fn a_shutdown_waits_for_upgraded_connections_up_to_its_grace_period() {
    let origin = shouter();
    let mut gateway = before(&origin, &["--shutdown-grace", "100ms"]);
    let mut client = Connection::open(gateway.address());
    client.send(UPGRADE);
    client.answer().expect(101);
    let end = gateway.stop();
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(end.stderr.contains("with open connections"), "{end:#?}");
}

/// An origin that sends the response of each case at its path, until the case is over, and a valid one otherwise. Also returns the
/// number of cases that are over.
fn liar(cases: Vec<Case>) -> (Origin, Arc<AtomicUsize>) {
    let past = Arc::new(AtomicUsize::new(0));
    let over = Arc::clone(&past);
    let origin = Origin::converse(move |asked, stream| {
        let path = asked.head.split(' ').nth(1).unwrap();
        match path[1..].parse::<usize>() {
            Ok(at) if at >= over.load(Ordering::SeqCst) => {
                // The proxy may have closed the connection.
                drop(stream.write_all(&cases[at].sent));
                drop(stream.shutdown(Shutdown::Write));
            }
            _ => drop(stream.write_all(ok("", "good").as_bytes())),
        }
    });
    (origin, past)
}

/// Returns the status of a complete response.
fn status_of_whole(gateway: &Gateway, path: &str) -> Option<String> {
    let mut connection = Connection::open(gateway.address());
    connection.send(format!(
        "GET {path} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n"
    ));
    let mut answer = connection.rest();
    while answer.starts_with(b"HTTP/1.1 1") && !answer.starts_with(b"HTTP/1.1 101") {
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        answer.drain(..end + 4);
    }
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let content = &answer[end + 4..];
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let is_whole = match length {
        Some(length) => length.parse() == Ok(content.len()),
        None if head.contains("transfer-encoding: chunked") => content.ends_with(b"0\r\n\r\n"),
        None => content.is_empty(),
    };
    is_whole.then(|| head[9..12].to_owned())
}

#[test]
fn false_responses_are_not_stored() {
    let cases = raw::cases(&fs::read_to_string("tests/data/proxy-answers.txt").unwrap());
    assert!(cases.len() > 45, "the file was not read to its end");
    let (origin, past) = liar(cases.clone());
    let gateway = before(&origin, &["--answer-timeout", "2s"]);
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let [expected, then] = &case.statuses[..] else {
            panic!("{}: {:?}", case.name, case.statuses)
        };
        let path = format!("/{at}");
        let first = status_of_whole(&gateway, &path).unwrap_or_else(|| "-".to_owned());
        if then == "kept" {
            // The response may arrive before it is stored.
            eventually(&case.name, || {
                is_hit(&get(&gateway, &path, "")).then_some(())
            });
        }
        past.store(at + 1, Ordering::SeqCst);
        let second = get(&gateway, &path, "").expect(200);
        let other = get(&gateway, "/other", "").expect(200);
        let found = match second.text() {
            "hello" if is_hit(&second) => "kept",
            "good" => "gone",
            other => other,
        };
        if (&*first, found, other.text()) != (expected, then, "good") {
            wrong.push(format!(
                "{}: {first} {found} {}, not {expected} {then}",
                case.name,
                other.text()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_request_smuggles_another() {
    let cases = raw::cases(&fs::read_to_string("tests/data/proxy-requests.txt").unwrap());
    assert!(cases.len() > 20, "the file was not read to its end");
    let origin = Origin::start(|_| ok("", "hello"));
    let gateway = before(&origin, &[]);
    let mut wrong = Vec::new();
    for case in cases {
        let before = origin.asked().len();
        let statuses = raw::statuses(gateway.address(), &case.sent);
        let asked = &origin.asked()[before..];
        let passed = case
            .statuses
            .iter()
            .filter(|status| &***status < "400")
            .count();
        let hidden = asked.iter().any(|asked| asked.head.contains("evil"));
        if statuses != case.statuses || asked.len() != passed || hidden {
            wrong.push(format!(
                "{}: {statuses:?}, not {:?}: {asked:?}",
                case.name, case.statuses
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
