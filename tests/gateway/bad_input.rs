//! Input that is wrong, as bytes on the wire: each gets its answer and loses nothing.

use std::fs;

use support::raw::{Connection, exchange};
use support::{Answer, Gateway};

use crate::{get, put_head, serve, wait_for};

/// A case of `tests/data/bad-requests.txt`.
struct Case {
    name: String,
    sent: Vec<u8>,
    statuses: Vec<String>,
}

#[test]
fn each_bad_request_gets_its_answer_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    let cases = cases(&fs::read_to_string("tests/data/bad-requests.txt").unwrap());
    assert!(cases.len() > 60, "the file was not read to its end");
    let kept = keep(&gateway);
    let mut wrong = Vec::new();
    for case in cases {
        let statuses = statuses(&gateway, &case);
        if statuses != case.statuses {
            wrong.push(format!("{}: {statuses:?} instead of {:?}", case.name, case.statuses));
        }
        unchanged(&gateway, &kept, &case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let spooled: Vec<_> = fs::read_dir(folder.path().join("tmp")).unwrap().collect();
    assert!(spooled.is_empty(), "{spooled:?}");
    assert!(!gateway.stderr().contains("panicked"), "{}", gateway.stderr());
}

/// A connection that breaks, rather than ends, in the middle of a body.
#[test]
fn a_client_that_vanishes_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    let kept = keep(&gateway);
    for size in [0, 1, 5_000, 500_000] {
        let mut connection = Connection::open(gateway.address());
        connection.send(put_head("kept", 1_000_000));
        connection.send(vec![b'x'; size]);
        drop(connection);
    }
    wait_for(&gateway, "ifmatch_requests_in_flight 1");
    unchanged(&gateway, &kept, "vanished");
}

/// Writes the blob that every case must leave as it is.
fn keep(gateway: &Gateway) -> Answer {
    exchange(gateway.address(), put_head("kept", 100) + &"k".repeat(100)).expect(201);
    exchange(gateway.address(), get("/c/kept")).expect(200)
}

#[track_caller]
fn unchanged(gateway: &Gateway, kept: &Answer, after: &str) {
    let now = exchange(gateway.address(), get("/c/kept")).expect(200);
    assert_eq!((now.etag(), &now.body), (kept.etag(), &kept.body), "after {after}");
    let listing = exchange(gateway.address(), get("/c")).expect(200).json();
    assert_eq!(listing["blobs"].as_array().map(Vec::len), Some(1), "after {after}: {listing}");
}

/// Sends the case, ends the sending side, and reads the statuses of all that comes back.
fn statuses(gateway: &Gateway, case: &Case) -> Vec<String> {
    let mut connection = Connection::open(gateway.address());
    // A server that has seen enough may close before all is sent; its answer is there all the same.
    let sent = connection.try_send(&case.sent);
    if sent.is_ok() {
        connection.finish_sending();
    }
    let answers = connection.rest();
    let starts = answers.windows(9).enumerate().filter(|(_, bytes)| *bytes == b"HTTP/1.1 " || *bytes == b"HTTP/1.0 ");
    let statuses: Vec<_> =
        starts.map(|(at, _)| String::from_utf8_lossy(&answers[at + 9..at + 12]).into_owned()).collect();
    if statuses.is_empty() { vec!["-".to_owned()] } else { statuses }
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut name = "";
    let mut sent = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(bytes) = line.strip_prefix("> ") {
            sent.extend(unescape(bytes));
        } else if let Some(statuses) = line.strip_prefix("< ") {
            let statuses = statuses.split(' ').map(str::to_owned).collect();
            cases.push(Case { name: name.to_owned(), sent: std::mem::take(&mut sent), statuses });
        } else {
            name = line;
        }
    }
    cases
}

/// `\r \n \t \0 \\ \xNN`, and `{N*X}` for X, N times.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '{' => {
                let (count, repeated) = rest.split_once('*').expect("{N*X}");
                let (repeated, after) = repeated.split_once('}').expect("{N*X}");
                bytes.extend(unescape(repeated).repeat(count.parse().expect("a number")));
                rest = after;
            }
            '\\' => {
                let (escape, after) = rest.split_at(1);
                rest = after;
                bytes.push(match escape {
                    "r" => b'\r',
                    "n" => b'\n',
                    "t" => b'\t',
                    "0" => 0,
                    "\\" => b'\\',
                    "x" => {
                        let (digits, after) = rest.split_at(2);
                        rest = after;
                        u8::from_str_radix(digits, 16).expect("two digits")
                    }
                    other => panic!("\\{other} in {text}"),
                });
            }
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}
