//! False and malformed messages from origins and clients, as bytes on the wire: nothing false is stored.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::Gateway;
use support::raw::Connection;
use support::wire::{self, Case};

use super::origin::{Origin, ok};
use super::{before, get, is_hit};

/// An origin that sends the response of each case at its path.
fn liar(cases: Vec<Case>) -> (Origin, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let over = Arc::clone(&told);
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
    (origin, told)
}

/// Returns the status of a complete response.
fn status_of_whole(gateway: &Gateway, path: &str) -> Option<String> {
    let mut connection = Connection::open(gateway.address());
    connection.send(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n"));
    let mut answer = connection.rest();
    while answer.starts_with(b"HTTP/1.1 1") && !answer.starts_with(b"HTTP/1.1 101") {
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        answer.drain(..end + 4);
    }
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let content = &answer[end + 4..];
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let is_whole = match length {
        Some(length) => length.parse() == Ok(content.len()),
        None if head.contains("transfer-encoding: chunked") => content.ends_with(b"0\r\n\r\n"),
        None => content.is_empty(),
    };
    is_whole.then(|| head[9..12].to_owned())
}

#[test]
fn false_responses_are_not_stored() {
    let cases = wire::cases(&fs::read_to_string("tests/data/proxy-answers.txt").unwrap());
    assert!(cases.len() > 45, "the file was not read to its end");
    let (origin, told) = liar(cases.clone());
    let gateway = before(&origin, &["--answer-timeout", "2s"]);
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let [expected, then] = &case.statuses[..] else { panic!("{}: {:?}", case.name, case.statuses) };
        let path = format!("/{at}");
        let first = status_of_whole(&gateway, &path).unwrap_or_else(|| "-".to_owned());
        if then == "kept" {
            // The response may arrive before it is stored.
            crate::eventually(&case.name, || is_hit(&get(&gateway, &path, "")).then_some(()));
        }
        told.store(at + 1, Ordering::SeqCst);
        let second = get(&gateway, &path, "").expect(200);
        let other = get(&gateway, "/other", "").expect(200);
        let found = match second.text() {
            "hello" if is_hit(&second) => "kept",
            "good" => "gone",
            other => other,
        };
        if (&*first, found, other.text()) != (expected, then, "good") {
            wrong.push(format!("{}: {first} {found} {}, not {expected} {then}", case.name, other.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_request_smuggles_another() {
    let cases = wire::cases(&fs::read_to_string("tests/data/proxy-requests.txt").unwrap());
    assert!(cases.len() > 20, "the file was not read to its end");
    let origin = Origin::start(|_| ok("", "hello"));
    let gateway = before(&origin, &[]);
    let mut wrong = Vec::new();
    for case in cases {
        let before = origin.asked().len();
        let statuses = wire::statuses(gateway.address(), &case.sent);
        let asked = &origin.asked()[before..];
        let passed = case.statuses.iter().filter(|status| &***status < "400").count();
        let hidden = asked.iter().any(|asked| asked.head.contains("evil"));
        if statuses != case.statuses || asked.len() != passed || hidden {
            wrong.push(format!("{}: {statuses:?}, not {:?}: {asked:?}", case.name, case.statuses));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
