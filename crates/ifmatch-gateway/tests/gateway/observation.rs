//! What an operator sees: the access log, metrics and `/-/overview`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::{Answer, Client, Gateway};

use crate::{RELOADED, eventually, hang_up, serve, wait_for};

/// Returns the lines of a file.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn the_access_log_shows_requests_but_no_tokens() {
    let flags = [
        "--access-log",
        "--log-format",
        "json",
        "--log",
        "trace",
        "--write-token",
        "hunter2hunter2",
    ];
    let mut gateway = Gateway::on_folder(&flags);
    let client = Client::new(gateway.address());
    let headers = [
        ("x-request-id", "find-me"),
        ("authorization", "Bearer hunter2hunter2"),
    ];
    client.put("/docs/a", &headers, "12345").await.expect(201);
    let log = gateway.stop().stderr;
    assert!(!log.contains("hunter2"), "{log}");
    let line = log
        .lines()
        .find(|line| line.contains("find-me"))
        .expect("a line for the request");
    let line: Value = serde_json::from_str(line).unwrap();
    let client: std::net::SocketAddr = line["client"].as_str().unwrap().parse().unwrap();
    assert!(client.ip().is_loopback() && client.port() > 0, "{line}");
    assert_eq!(line["method"], "PUT");
    assert_eq!(line["path"], "/docs/a");
    assert_eq!(line["status"], 201);
    assert_eq!(line["bytes_in"], 5);
    assert!(line["duration_us"].is_u64(), "{line}");
}

#[tokio::test]
async fn a_file_gets_conditions_and_decisions_but_no_signatures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let to_file = format!("--access-log={}", file.display());
    let flags = [
        &to_file,
        "--log-format",
        "json",
        "--log",
        "trace",
        "--write-token",
        "hunter2hunter2",
    ];
    let mut gateway = serve(&folder.path().join("data"), &flags);
    let client = Client::new(gateway.address());
    // A line may be written after the next response otherwise.
    let logged = |count: usize| {
        eventually("a line for each request", || {
            (lines(&file).len() == count).then_some(())
        });
    };
    let token = ("authorization", "Bearer hunter2hunter2");
    let tag = client
        .put("/docs/a", &[token, ("if-none-match", "*")], "12345")
        .await
        .expect(201)
        .etag()
        .to_owned();
    logged(1);
    client
        .put("/docs/a", &[token, ("if-none-match", "*")], "67")
        .await
        .expect(412);
    logged(2);
    client
        .get("/docs/a", &[token, ("if-none-match", &tag)])
        .await
        .expect(304);
    logged(3);
    client.get("/docs/a", &[token]).await.expect(200);
    logged(4);
    client
        .get(
            "/devstoreaccount1/docs/a?sv=2021-08-06&sig=c2VjcmV0c2VjcmV0",
            &[("x-ms-version", "2021-08-06")],
        )
        .await;
    let log = gateway.stop().stderr;
    let written = fs::read_to_string(&file).unwrap();
    for secret in ["hunter2", "c2VjcmV0"] {
        assert!(
            !written.contains(secret) && !log.contains(secret),
            "{written}{log}"
        );
    }
    let lines = lines(&file);
    let decisions: Vec<_> = lines
        .iter()
        .map(|line| (line["condition"].as_str(), line["decision"].as_str()))
        .collect();
    let star = Some("if-none-match");
    assert_eq!(
        decisions[..4],
        [
            (star, Some("met")),
            (star, Some("failed")),
            (star, Some("not_modified")),
            (None, None)
        ]
    );
    assert_eq!(
        (&lines[0]["path"], &lines[0]["bytes_in"]),
        (&"/docs/a".into(), &5.into()),
        "{}",
        lines[0]
    );
    assert_eq!(
        (&lines[3]["status"], &lines[3]["bytes_out"]),
        (&200.into(), &5.into()),
        "{}",
        lines[3]
    );
    let kinds: Vec<_> = lines
        .iter()
        .map(|line| line["credentials"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(kinds, ["token", "token", "token", "token", "shared-access"]);
    assert!(
        lines[4]["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("/docs/a")),
        "{}",
        lines[4]
    );
    assert!(!log.contains("ifmatch::access"), "{log}");
}

#[tokio::test]
async fn the_combined_format_is_apaches_and_hostile_values_forge_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let to_file = format!("--access-log={}", file.display());
    let gateway = serve(
        &folder.path().join("data"),
        &[&to_file, "--access-log-format", "combined"],
    );
    let hostile = "x\" 200 5 \"\\";
    let request = format!(
        "GET /docs/a?token=c2VjcmV0 HTTP/1.1\r\nHost: localhost\r\nReferer: http://a/b?sig=c2VjcmV0\r\nUser-Agent: {hostile}\r\n\r\n"
    );
    support::raw::exchange(gateway.address(), request).expect(404);
    let line = eventually("the line", || {
        fs::read_to_string(&file)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    let (client, rest) = line.split_once(" - - [").unwrap();
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!(
        (client, time.len()),
        ("127.0.0.1", "24/Nov/2026:19:51:20 +0000".len()),
        "{line}"
    );
    let (request, rest) = rest.split_once(" 404 ").unwrap();
    let (bytes, rest) = rest.split_once(' ').unwrap();
    assert!(
        request == "\"GET /docs/a HTTP/1.1\"" && bytes.parse::<u64>().unwrap() > 0,
        "{line}"
    );
    assert_eq!(rest, "\"http://a/b\" \"x%22 200 5 %22%5C\"\n");
}

#[tokio::test]
async fn sighup_opens_a_renamed_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, renamed) = (
        folder.path().join("access.log"),
        folder.path().join("access.log.1"),
    );
    let to_file = format!("--access-log={}", file.display());
    let gateway = serve(
        &folder.path().join("data"),
        &[&to_file, "--log-format", "json"],
    );
    let client = Client::new(gateway.address());
    client.get("/docs/before", &[]).await.expect(404);
    eventually("the first line", || (lines(&file).len() == 1).then_some(()));
    fs::rename(&file, &renamed).unwrap();
    client.get("/docs/between", &[]).await.expect(404);
    eventually("a line in the renamed file", || {
        (lines(&renamed).len() == 2).then_some(())
    });
    // The file exists before lines go to it.
    hang_up(&gateway, RELOADED);
    client.get("/docs/after", &[]).await.expect(404);
    eventually("a line in the new file", || {
        (lines(&file).len() == 1).then_some(())
    });
    assert_eq!(
        (&lines(&file)[0]["path"], lines(&renamed).len()),
        (&"/docs/after".into(), 2)
    );
}

#[tokio::test]
async fn a_dash_is_stdout_and_a_file_that_cannot_be_opened_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--access-log=-"]);
    Client::new(gateway.address())
        .get("/docs/a", &[])
        .await
        .expect(404);
    let output = gateway.stop();
    assert!(
        output.stdout.contains("path=/docs/a") && !output.stderr.contains("path=/docs/a"),
        "{output:#?}"
    );
    let data = folder.path().to_str().unwrap();
    let missing = format!("--access-log={data}/missing/access.log");
    let refused = support::run(["serve", "--data", data, &missing]);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(
        refused.stderr.contains("can't open --access-log"),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn requests_are_counted_by_outcome() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--require-conditions"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a", &[("if-none-match", "*")], "12345")
        .await
        .expect(201)
        .etag()
        .to_owned();
    client
        .put("/c/a", &[("if-none-match", "*")], "x")
        .await
        .expect(412);
    client.put("/c/a", &[], "x").await.expect(428);
    client
        .get("/c/a", &[("if-none-match", &tag)])
        .await
        .expect(304);
    client.get("/c/a", &[]).await.expect(200);
    client.get("/c/none", &[]).await.expect(404);
    client
        .request(http::Method::from_bytes(b"BREW").unwrap(), "/c/a", &[], "")
        .await
        .expect(405);

    // A request is counted once its response has been sent, which the client may notice before the gateway.
    let last = r#"ifmatch_requests_total{method="other",status="4xx"} 1"#;
    wait_for(&gateway, last);
    wait_for(&gateway, "ifmatch_requests_in_flight 1");
    let metrics = client.get("/-/metrics", &[]).await.expect(200);
    assert_eq!(
        metrics.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    for line in [
        r#"ifmatch_requests_total{method="PUT",status="2xx"} 1"#,
        r#"ifmatch_requests_total{method="PUT",status="4xx"} 2"#,
        r#"ifmatch_requests_total{method="GET",status="3xx"} 1"#,
        r#"ifmatch_requests_total{method="GET",status="4xx"} 1"#,
        last,
        r#"ifmatch_conditions_total{outcome="met",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="not_modified",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-match"} 0"#,
        r#"ifmatch_conditions_total{outcome="required"} 1"#,
        r#"ifmatch_store_errors_total{kind="unavailable"} 0"#,
        r#"ifmatch_request_duration_seconds_count{method="PUT"} 3"#,
        "ifmatch_requests_in_flight 1",
    ] {
        assert!(
            metrics.text().lines().any(|found| found == line),
            "{line} is missing in\n{}",
            metrics.text()
        );
    }
    assert!(
        value(
            &metrics,
            r#"ifmatch_register_seconds_count{operation="swap",outcome="done"}"#
        ) >= 1.0
    );
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="in"}"#) >= 5.0);
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="out"}"#) >= 5.0);
    assert!(value(&metrics, "ifmatch_connections") >= 1.0);
    assert!(metrics.text().contains("ifmatch_build_info{version="));
}

fn value(metrics: &Answer, name: &str) -> f64 {
    let line = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{}", metrics.text()))
        .parse()
        .expect("a number")
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
