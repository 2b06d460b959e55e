//! Bad requests, as bytes on the wire.

use std::fs;

use support::raw::{Connection, exchange};
use support::{Answer, Gateway, wire};

use crate::{get, put_head, serve, wait_for};

#[test]
fn each_bad_request_gets_its_response_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    let cases = wire::cases(&fs::read_to_string("tests/data/bad-requests.txt").unwrap());
    assert!(cases.len() > 60, "the file was not read to its end");
    let kept = keep(&gateway);
    let mut wrong = Vec::new();
    for case in cases {
        let statuses = wire::statuses(gateway.address(), &case.sent);
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

#[test]
fn the_endpoints_reject_bad_requests_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    for (sent, status) in [
        ("GET /-/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET /-/health HTTP/1.1\r\n\r\n", 400),
        ("GET /-/health HTTP/1.0\r\n\r\n", 200),
        ("POST /-/leases/c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
    ] {
        exchange(gateway.address(), sent).expect(status);
    }
}

/// A connection that breaks in the middle of a body.
#[test]
fn a_broken_connection_changes_nothing() {
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

/// Writes the blob that no case may change.
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
