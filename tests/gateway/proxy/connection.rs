//! Interim responses and upgrades.

use std::io::{Read, Write};

use support::raw::Connection;

use super::before;
use super::origin::{Origin, ok};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\nconnection: x-private\r\n\
     x-private: 1\r\ncontent-length: 100\r\ntrailer: x\r\n\r\n";

/// An origin that sends a hint, and its response when the test allows it.
fn hinting() -> (Origin, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let origin = Origin::converse(move |_, stream| {
        stream.write_all(HINTS.as_bytes()).unwrap();
        // Fails if the test has failed.
        let _ = released.lock().unwrap().recv();
        stream.write_all(ok("cache-control: no-store\r\n", "hello").as_bytes()).unwrap();
    });
    (origin, release)
}

#[test]
fn early_hints_precede_the_response() {
    let (origin, release) = hinting();
    let gateway = before(&origin, &[]);
    let mut client = Connection::open(gateway.address());
    // The second request is pipelined: its hint must not mix with the first response.
    client.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\n");
    for _ in 0..2 {
        let hint = client.answer().expect(103);
        assert_eq!(hint.header("link"), "</style.css>; rel=preload");
        assert_eq!(hint.headers.len(), 1, "nothing about the connection or a content: {hint:?}");
        release.send(()).unwrap();
        assert_eq!(client.answer().expect(200).text(), "hello");
    }
}

#[test]
fn a_client_of_http_1_0_gets_no_interim_response() {
    let (origin, release) = hinting();
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
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Accepts an upgrade, and then echoes everything in upper case.
fn shouter() -> Origin {
    Origin::converse(|asked, stream| {
        assert_eq!((asked.field("upgrade"), asked.field("connection")), (Some("shout"), Some("upgrade")), "{asked:?}");
        let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
        stream.write_all(agreed.as_bytes()).unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count].to_ascii_uppercase()).unwrap();
        }
    })
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: shout\r\n\r\n";

#[test]
fn upgraded_connections_pass_data_in_both_directions() {
    for flags in [&[][..], &["--guard-writes"]] {
        let origin = shouter();
        let gateway = before(&origin, flags);
        let mut client = Connection::open(gateway.address());
        client.send(UPGRADE);
        assert_eq!(client.answer().expect(101).header("upgrade"), "shout", "{flags:?}");
        client.send("hello");
        client.finish_sending();
        assert_eq!(client.rest(), b"HELLO", "{flags:?}");
    }
}

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
