//! Requests on every kind of store, the header fields of each response, and the log.

use std::process::Command;

use support::{Client, Gateway};

use crate::serve;

#[tokio::test]
async fn object_stores_serve_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let known = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let known = known.path().to_str().unwrap();
    for flags in [vec!["--store", "memory://"], vec!["--store", &url], vec!["--store", &url, "--data", known]] {
        let gateway = support::Gateway::start(["serve"].iter().chain(&flags));
        let client = Client::new(gateway.address());
        let first = client.put("/docs/a", &[("if-none-match", "*")], "one").await.expect(201);
        client.put("/docs/a", &[("if-none-match", "*")], "two").await.expect(412);
        client.put("/docs/a", &[("if-match", first.etag())], "three").await.expect(200);
        client.put("/docs/a", &[("if-match", first.etag())], "four").await.expect(412);
        assert_eq!(client.get("/docs/a", &[]).await.expect(200).text(), "three", "{flags:?}");
        client.delete("/docs/a", &[]).await.expect(204);
    }
}

#[tokio::test]
async fn every_response_has_a_date_a_server_and_a_request_id() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    let client = Client::new(gateway.address());
    for path in ["/", "/none/none", "/-/health", "/-/nothing"] {
        let answer = client.get(path, &[("x-request-id", "mine-1")]).await;
        assert_eq!((answer.header("server"), answer.header("x-request-id")), ("ifmatch", "mine-1"), "{path}");
        assert!(answer.header("date").ends_with("GMT"), "{path}");
    }
    let own = client.get("/", &[("x-request-id", "two words")]).await;
    assert_eq!(own.header("x-request-id").len(), 32);
}

#[tokio::test]
async fn conditions_can_be_required() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &["--require-conditions"]);
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "one").await.expect(428);
    client.put("/docs/a", &[("if-none-match", "*")], "one").await.expect(201);
    client.delete("/docs/a", &[]).await.expect(428);
    client.get("/docs/a", &[]).await.expect(200);
}

#[tokio::test]
async fn the_access_log_shows_requests_but_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--access-log", "--log-format", "json", "--log", "trace", "--write-token", "hunter2hunter2"];
    let mut gateway = serve(folder.path(), &flags);
    let client = Client::new(gateway.address());
    let headers = [("x-request-id", "find-me"), ("authorization", "Bearer hunter2hunter2")];
    client.put("/docs/a", &headers, "12345").await.expect(201);
    let log = gateway.stop().stderr;
    assert!(!log.contains("hunter2"), "{log}");
    let line = log.lines().find(|line| line.contains("find-me")).expect("a line for the request");
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let client: std::net::SocketAddr = line["client"].as_str().unwrap().parse().unwrap();
    assert!(client.ip().is_loopback() && client.port() > 0, "{line}");
    assert_eq!(line["method"], "PUT");
    assert_eq!(line["path"], "/docs/a");
    assert_eq!(line["status"], 201);
    assert_eq!(line["bytes_in"], 5);
    assert!(line["duration_us"].is_u64(), "{line}");
}

#[tokio::test]
async fn a_closed_stderr_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::command();
    // The reader of the pipe ends before the first line.
    let script = r#"mkfifo "$LOG" && { : <"$LOG" & exec "$0" "$@" 2>"$LOG"; }"#;
    let mut command = Command::new("sh");
    for (name, value) in gateway.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("LOG", folder.path().join("log")).args(["-c", script]).arg(gateway.get_program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--access-log", "--data"]).arg(folder.path().join("data"));
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "12345").await.expect(201);
    client.get("/docs/a", &[]).await.expect(200);
    assert_eq!(gateway.stop().status.code(), Some(0));
}
