//! Shutdown: requests in flight are completed, and idle connections are closed.

use std::net::TcpStream;

use support::raw::{Connection, exchange};
use support::{Client, Gateway};

use crate::frames::{PREFACE, SETTINGS, frame};
use crate::{eventually, get, put_head, serve, wait_for};

/// Starts a PUT and sends the first half of its body.
fn half_a_put(gateway: &Gateway) -> Connection {
    let mut put = Connection::open(gateway.address());
    put.send(put_head("slow", 8));
    put.send("half");
    // The PUT and the request for the metrics.
    wait_for(gateway, "ifmatch_requests_in_flight 2");
    put
}

fn wait_until_port_closed(gateway: &Gateway) {
    eventually("the port is closed", || TcpStream::connect(gateway.address()).err());
}

#[tokio::test]
async fn writes_in_flight_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    let mut idle = Connection::open(gateway.address());
    idle.send(get("/-/health"));
    idle.answer().expect(200);
    let mut put = half_a_put(&gateway);
    gateway.terminate();
    wait_until_port_closed(&gateway);
    assert!(idle.rest().is_empty(), "an idle connection is closed immediately");
    put.send("done");
    let answer = put.answer().expect(201);
    assert_eq!(answer.header("connection"), "close");
    assert!(put.rest().is_empty());
    assert_eq!(gateway.finished().status.code(), Some(0));

    gateway.restart();
    let kept = Client::new(gateway.address()).get("/c/slow", &[]).await.expect(200);
    assert_eq!((kept.text(), kept.etag()), ("halfdone", answer.etag()));
}

#[tokio::test]
async fn a_write_beyond_the_grace_period_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--shutdown-grace", "300ms"]);
    let tag = Client::new(gateway.address()).put("/c/slow", &[], "old").await.expect(201).etag().to_owned();
    let mut put = half_a_put(&gateway);
    let end = gateway.stop();
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(end.stderr.contains("stopped with open connections"), "{end:#?}");
    assert!(put.rest().is_empty());
    gateway.restart();
    let kept = Client::new(gateway.address()).get("/c/slow", &[]).await.expect(200);
    assert_eq!((kept.text(), kept.etag()), ("old", &*tag));
}

/// Its machine is gone, so it does not respond to the PING that follows the GOAWAY.
#[test]
fn a_client_that_is_gone_does_not_delay_the_shutdown() {
    let flags = ["--shutdown-grace", "1h", "--keep-alive", "1h", "--head-timeout", "100ms"];
    let mut gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let mut gone = Connection::open(gateway.address());
    gone.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &crate::frames::get(1, "/-/health")].concat());
    assert!(gone.is_answered());
    gateway.terminate();
    assert_eq!(gateway.finished().status.code(), Some(0));
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-grace", "1h"]);
    let mut put = half_a_put(&gateway);
    gateway.terminate();
    wait_until_port_closed(&gateway);
    assert_eq!(gateway.stop().status.code(), Some(1));
    assert!(put.rest().is_empty());
}

#[test]
fn health_reports_the_shutdown_before_the_port_closes() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-delay", "1h"]);
    gateway.terminate();
    let health = eventually("health expected 503", || {
        Some(exchange(gateway.address(), get("/-/health"))).filter(|health| health.status != 200)
    });
    assert_eq!(health.expect(503).json(), serde_json::json!({ "status": "stopping" }));
    exchange(gateway.address(), get("/")).expect(200);
    // A second signal ends the delay.
    assert!(gateway.stop().status.code().is_some());
}

/// A request that is sent just before the server closes its connection is lost. During the delay, a client learns from a response
/// that it must open another one.
#[test]
fn responses_close_their_connections_during_the_delay() {
    let mut gateway = Gateway::start(["serve", "--store", "memory://", "--shutdown-delay", "1h"]);
    let mut kept: Vec<_> = (0..16).map(|_| Connection::open(gateway.address())).collect();
    for connection in &mut kept {
        connection.send(get("/-/health"));
        assert!(!connection.answer().expect(200).headers.contains_key("connection"));
    }
    gateway.terminate();
    eventually("health expected 503", || {
        Some(exchange(gateway.address(), get("/-/health"))).filter(|health| health.status == 503)
    });
    for connection in &mut kept {
        connection.send(get("/"));
        assert_eq!(connection.answer().expect(200).header("connection"), "close");
        assert!(connection.rest().is_empty());
    }
    gateway.stop();
}

/// Downloads in flight are completed as well, even for a slow reader.
#[tokio::test]
async fn responses_in_flight_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    Client::new(gateway.address()).put("/c/big", &[], vec![b'x'; 32 << 20]).await.expect(201);
    let mut download = Connection::open(gateway.address());
    download.send(get("/c/big"));
    wait_for(&gateway, "ifmatch_requests_in_flight 2");
    gateway.terminate();
    wait_until_port_closed(&gateway);
    assert_eq!(download.answer().expect(200).body.len(), 32 << 20);
    assert_eq!(gateway.finished().status.code(), Some(0));
}
