//! Conflicts and waits: who loses and why, `/-/conflicts`, `/-/overview`, and requests that wait.

use std::time::Duration;

use serde_json::json;
use support::azure::Azure;
use support::raw::{Connection, exchange};
use support::{Client, Gateway, run};

use crate::wait_for;

const ID: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

#[tokio::test]
async fn a_conflict_shows_what_was_sent_and_what_was_there() {
    let gateway = Gateway::on_folder(&["--require-conditions"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a%20b", &[("if-none-match", "*")], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
    for _ in 0..3 {
        client
            .put(
                "/c/a%20b",
                &[("if-match", "\"old\""), ("user-agent", "deploy/1")],
                "two",
            )
            .await
            .expect(412);
    }
    client.put("/c/other", &[], "two").await.expect(428);
    client
        .get("/c/a%20b", &[("if-none-match", &tag)])
        .await
        .expect(304);
    client
        .get("/c/a%20b", &[("if-match", "\"old\"")])
        .await
        .expect(412);
    let found = client.get("/-/conflicts", &[]).await.expect(200).json();
    assert_eq!(
        (&found["total"], &found["window"]),
        (&json!(5), &json!(600)),
        "{found}"
    );
    let paths = found["worst"].as_array().unwrap().iter();
    let worst: Vec<_> = paths
        .map(|path| {
            json!([
                path["path"],
                path["count"],
                path["uncertain"],
                path["statuses"]
            ])
        })
        .collect();
    assert_eq!(
        worst,
        [
            json!(["/c/a%20b", 4, 0, { "412": 4 }]),
            json!(["/c/other", 1, 0, { "428": 1 }])
        ]
    );
    let loser = json!({ "client": "127.0.0.1", "user_agent": "deploy/1", "product": "deploy/1", "count": 3, "uncertain": 0 });
    assert_eq!(
        (&found["clients"][0], &found["worst"][0]["clients"][0]),
        (&loser, &loser),
        "{found}"
    );
    let of_client = client
        .get("/-/conflicts?client=127.0.0.1&user_agent=deploy%2F1", &[])
        .await
        .expect(200)
        .json();
    assert_eq!(
        (
            &of_client["worst"][0]["count"],
            of_client["recent"].as_array().map(Vec::len)
        ),
        (&json!(3), Some(3))
    );
    let lost = client
        .get("/-/conflicts?path=%2Fc%2Fa%2520b&limit=2", &[])
        .await
        .expect(200)
        .json()["recent"]
        .clone();
    assert_eq!(lost.as_array().map(Vec::len), Some(2), "{lost}");
    let lost = &lost[1];
    assert_eq!(
        (&lost["method"], &lost["status"], &lost["by_lease"]),
        (&json!("PUT"), &json!(412), &json!(false))
    );
    assert_eq!(lost["conditions"], json!({ "if-match": "\"old\"" }));
    assert_eq!(
        (&lost["current"], &lost["user_agent"]),
        (&json!(tag), &json!("deploy/1"))
    );
    client.get("/-/conflicts?limit=0", &[]).await.expect(400);
    client.get("/-/conflicts?x=1", &[]).await.expect(400);
}

#[tokio::test]
async fn the_clients_that_a_lease_keeps_waiting_are_listed_with_it() {
    let gateway = Gateway::on_folder(&[]);
    let client = Client::new(gateway.address());
    let azure = Azure::development(client.clone());
    azure.create_container("docs").await.expect(201);
    azure.put("/docs/a", &[], "one").await.expect(201);
    let lease = [
        ("x-ms-lease-duration", "-1"),
        ("x-ms-proposed-lease-id", ID),
    ];
    azure.lease("/docs/a", "acquire", &lease).await.expect(201);
    let other = [("x-ms-lease-duration", "60")];
    azure.lease("/docs/a", "acquire", &other).await.expect(409);
    client
        .put("/docs/a", &[("user-agent", "plain/1")], "two")
        .await
        .expect(412);
    client
        .put("/docs/a", &[("user-agent", "plain/1")], "two")
        .await
        .expect(412);
    let listed = client.get("/-/leases", &[]).await.expect(200).json()["leases"][0].clone();
    let waiting = listed["waiting"].as_array().unwrap();
    let counts: Vec<_> = waiting
        .iter()
        .map(|one| one["count"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (waiting.len(), counts.iter().sum::<u64>()),
        (2, 3),
        "{listed}"
    );
    assert!(
        waiting
            .iter()
            .any(|one| one["user_agent"] == "plain/1" && one["count"] == 2),
        "{listed}"
    );

    // A break that names a lease leaves a later one alone.
    let token = listed["token"].as_u64().unwrap();
    let break_it =
        |token: u64| json!({ "action": "break", "period": 0, "token": token }).to_string();
    let json = [("content-type", "application/json")];
    let path = "/-/leases/docs/a";
    client
        .request(http::Method::POST, path, &json, break_it(token - 1))
        .await
        .expect(409);
    assert_eq!(
        client.get(path, &[]).await.expect(200).json()["state"],
        "leased"
    );
    client
        .request(http::Method::POST, path, &json, break_it(token))
        .await
        .expect(200);
    let broken = client.get(path, &[]).await.expect(200).json();
    assert_eq!(
        (&broken["state"], &broken["waiting"]),
        (&json!("broken"), &json!([]))
    );
}

#[tokio::test]
async fn the_overview_has_the_settings_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Gateway::command();
    command.env("IFMATCH_MAX_WAITS", "7");
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--write-token",
            "very-secret-token",
            "--data",
        ])
        .arg(folder.path());
    let gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    for path in ["/-/overview", "/-/conflicts"] {
        client.get(path, &[]).await.expect(401);
    }
    let authorization = [("authorization", "Bearer very-secret-token")];
    let overview = client.get("/-/overview", &authorization).await.expect(200);
    assert!(
        !overview.text().contains("very-secret-token"),
        "{}",
        overview.text()
    );
    let overview = overview.json();
    assert_eq!(
        (&overview["status"], &overview["register"]),
        (&json!("ready"), &json!(null))
    );
    let settings = overview["settings"].as_array().unwrap();
    for setting in [
        json!({ "name": "--max-waits", "value": "7", "source": "environment" }),
        json!({ "name": "--write-token", "value": "(hidden)", "source": "flag" }),
        json!({ "name": "--max-requests", "value": "1000", "source": "default" }),
    ] {
        assert!(
            settings.contains(&setting),
            "{setting} is missing in {overview:#}"
        );
    }
    assert!(
        overview["disk"]["free"].as_u64() > Some(0)
            && overview["requests"]["client_errors"].as_f64() >= Some(2.0)
    );
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
    let tag = client
        .put("/c/a", &[], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
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
    let tag = Client::new(gateway.address())
        .put("/c/a", &[], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
    let mut poll = poll(&gateway, &tag);
    gateway.terminate();
    poll.answer().expect(304);
    assert_eq!(gateway.finished().status.code(), Some(0));
}

#[tokio::test]
async fn a_wait_beyond_the_bound_is_answered_at_once() {
    let gateway = Gateway::on_folder(&["--max-waits", "1"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a", &[], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
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
    let tag = client
        .put("/c/a", &[], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
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
