//! Slow and stalled clients. The timeouts are short, and the tests assert no durations.

use std::thread::sleep;
use std::time::Duration;

use support::raw::Connection;
use support::{Client, Gateway};

use crate::{get, put_head, serve, wait_for};

#[test]
fn a_partial_head_times_out() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--head-timeout", "300ms"]);
    for start in ["", "P", "PR", "PRI", "G", "GET / HTTP/1.1\r\nHost:", "PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
        let mut connection = Connection::open(gateway.address());
        connection.send(start);
        connection.rest();
    }
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="head"} 7"#);
}

/// Single bytes do not restart the timeout.
#[test]
fn a_trickling_head_times_out() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--head-timeout", "300ms"]);
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HTTP/1.1\r\nX: ");
    let dripped = (0..600).take_while(|_| {
        sleep(Duration::from_millis(50));
        connection.try_send("x").is_ok()
    });
    assert!(dripped.count() < 600, "the connection was never closed");
}

#[test]
fn an_idle_connection_is_closed() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--keep-alive", "300ms"]);
    let mut connection = Connection::open(gateway.address());
    connection.send(get("/-/health"));
    connection.answer().expect(200);
    assert!(connection.rest().is_empty());
}

#[tokio::test]
async fn a_stalled_body_gets_408_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &["--body-timeout", "400ms"]);
    let client = Client::new(gateway.address());
    let tag = client.put("/c/a", &[], "old").await.expect(201).etag().to_owned();
    for part in ["", "n", &"n".repeat(5_000)] {
        let mut connection = Connection::open(gateway.address());
        connection.send(put_head("a", 10_000));
        connection.send(part);
        let answer = connection.answer().expect(408);
        assert_eq!(answer.header("connection"), "close");
        assert!(connection.rest().is_empty(), "408 ends the connection");
    }
    let kept = client.get("/c/a", &[]).await.expect(200);
    assert_eq!((kept.text(), kept.etag()), ("old", &*tag));
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="body"} 3"#);
}

#[test]
fn a_trickling_body_gets_408() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--body-timeout", "400ms"]);
    let mut connection = Connection::open(gateway.address());
    connection.send(put_head("a", 10_000));
    let dripped = (0..600).take_while(|_| {
        sleep(Duration::from_millis(50));
        connection.try_send("x").is_ok()
    });
    assert!(dripped.count() < 600, "the connection was never closed");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &["--body-timeout", "400ms"]);
    let client = Client::new(gateway.address());
    client.put("/c/big", &[], vec![b'x'; 64 << 20]).await.expect(201);
    let mut connection = Connection::open(gateway.address());
    connection.send(get("/c/big"));
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="answer"} 1"#);
    assert!(connection.rest().len() < 64 << 20);
}
