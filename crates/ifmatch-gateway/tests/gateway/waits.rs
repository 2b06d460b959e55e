//! Requests that wait for a change: `Prefer: wait`.

use std::time::Duration;

use support::raw::{Connection, exchange};
use support::{Client, Gateway, run};

use crate::wait_for;

/// Creates `/c/a`, and returns its tag.
async fn create(client: &Client) -> String {
    let created = client.put("/c/a", &[], "one").await.expect(201);
    created.etag().to_owned()
}

/// Sends a poll for a change of `/c/a`, and returns once it waits.
fn poll(gateway: &Gateway, tag: &str) -> Connection {
    let mut poll = Connection::open(gateway.address());
    poll.send(format!(
        "GET /c/a HTTP/1.1\r\nHost: test\r\nIf-None-Match: {tag}\r\nPrefer: wait=60\r\n\r\n"
    ));
    wait_for(gateway, "ifmatch_waits 1");
    poll
}

/// The wait is longer than the time in which a client must send, read, or begin another request.
#[tokio::test]
async fn a_waiting_client_is_not_a_slow_one() {
    let gateway = Gateway::on_folder(&["--body-timeout", "100ms", "--keep-alive", "100ms"]);
    let client = Client::new(gateway.address());
    let tag = create(&client).await;
    let mut poll = poll(&gateway, &tag);
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.put("/c/a", &[], "two").await.expect(200);
    let answer = poll.answer().expect(200);
    assert_eq!(
        (answer.text(), answer.header("preference-applied")),
        ("two", "wait=60")
    );
    for of in ["head", "body", "answer"] {
        wait_for(
            &gateway,
            &format!(r#"ifmatch_timeouts_total{{of="{of}"}} 0"#),
        );
    }
    wait_for(&gateway, "ifmatch_waits 0");
}

#[tokio::test]
async fn a_shutdown_ends_a_wait_with_304() {
    let mut gateway = Gateway::on_folder(&["--shutdown-grace", "1h"]);
    let tag = create(&Client::new(gateway.address())).await;
    let mut poll = poll(&gateway, &tag);
    gateway.terminate();
    poll.answer().expect(304);
    assert_eq!(gateway.finished().status.code(), Some(0));
}

#[tokio::test]
async fn a_wait_beyond_the_bound_is_answered_at_once() {
    let gateway = Gateway::on_folder(&["--max-waits", "1"]);
    let client = Client::new(gateway.address());
    let tag = create(&client).await;
    let mut first = poll(&gateway, &tag);
    let refused = client
        .get("/c/a", &[("if-none-match", &tag), ("prefer", "wait=60")])
        .await
        .expect(304);
    assert!(
        !refused.headers.contains_key("preference-applied"),
        "{refused:?}"
    );
    client.delete("/c/a", &[]).await.expect(204);
    first.answer().expect(404);
    wait_for(&gateway, "ifmatch_waits 0");
}

/// The cache would answer 304 by itself, without waiting.
#[tokio::test]
async fn a_poll_bypasses_the_cache() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--cache", "64MiB"]);
    let client = Client::new(gateway.address());
    let tag = create(&client).await;
    client.get("/c/a", &[]).await.expect(200);
    let mut poll = poll(&gateway, &tag);
    client.put("/c/a", &[], "two").await.expect(200);
    assert_eq!(poll.answer().expect(200).text(), "two");
}

#[test]
fn waits_leave_slots_for_other_requests() {
    let refused = run([
        "serve",
        "--store",
        "memory://",
        "--max-requests",
        "10",
        "--max-waits",
        "6",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused
            .stderr
            .contains("--max-waits is 6. Set it to at most half of --max-requests (5)"),
        "{}",
        refused.stderr
    );
    let gateway = Gateway::start(["serve", "--store", "memory://", "--max-requests", "10"]);
    exchange(gateway.address(), crate::get("/-/health")).expect(200);
}
