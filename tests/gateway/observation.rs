//! What an operator sees: the access log, metrics and traces.

use std::convert::Infallible;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::Value;
use support::{Answer, Client, Gateway, Server};
use tower::service_fn;

use crate::{eventually, serve};

/// Returns the lines of a file.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_file_gets_conditions_and_decisions_but_no_signatures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let to_file = format!("--access-log={}", file.display());
    let flags = [&to_file, "--log-format", "json", "--log", "trace", "--write-token", "hunter2hunter2"];
    let mut gateway = serve(&folder.path().join("data"), &flags);
    let client = Client::new(gateway.address());
    // A line may be written after the next response otherwise.
    let logged = |count: usize| eventually("a line for each request", || (lines(&file).len() == count).then_some(()));
    let token = ("authorization", "Bearer hunter2hunter2");
    let tag = client.put("/docs/a", &[token, ("if-none-match", "*")], "12345").await.expect(201).etag().to_owned();
    logged(1);
    client.put("/docs/a", &[token, ("if-none-match", "*")], "67").await.expect(412);
    logged(2);
    client.get("/docs/a", &[token, ("if-none-match", &tag)]).await.expect(304);
    logged(3);
    client.get("/docs/a", &[token]).await.expect(200);
    logged(4);
    client.get("/devstoreaccount1/docs/a?sv=2021-08-06&sig=c2VjcmV0c2VjcmV0", &[("x-ms-version", "2021-08-06")]).await;
    let log = gateway.stop().stderr;
    let written = fs::read_to_string(&file).unwrap();
    for secret in ["hunter2", "c2VjcmV0"] {
        assert!(!written.contains(secret) && !log.contains(secret), "{written}{log}");
    }
    let lines = lines(&file);
    let decisions: Vec<_> = lines.iter().map(|line| (line["condition"].as_str(), line["decision"].as_str())).collect();
    let star = Some("if-none-match");
    assert_eq!(
        decisions[..4],
        [(star, Some("met")), (star, Some("failed")), (star, Some("not_modified")), (None, None)]
    );
    assert_eq!((&lines[0]["path"], &lines[0]["bytes_in"]), (&"/docs/a".into(), &5.into()), "{}", lines[0]);
    assert_eq!((&lines[3]["status"], &lines[3]["bytes_out"]), (&200.into(), &5.into()), "{}", lines[3]);
    let kinds: Vec<_> = lines.iter().map(|line| line["credentials"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["token", "token", "token", "token", "shared-access"]);
    assert!(lines[4]["path"].as_str().is_some_and(|path| path.ends_with("/docs/a")), "{}", lines[4]);
    assert!(!log.contains("ifmatch::access"), "{log}");
}

#[tokio::test]
async fn the_combined_format_is_that_of_apache_and_hostile_values_forge_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let to_file = format!("--access-log={}", file.display());
    let gateway = serve(&folder.path().join("data"), &[&to_file, "--access-log-format", "combined"]);
    let hostile = "x\" 200 5 \"\\";
    let request = format!(
        "GET /docs/a?token=c2VjcmV0 HTTP/1.1\r\nHost: localhost\r\nReferer: http://a/b?sig=c2VjcmV0\r\nUser-Agent: {hostile}\r\n\r\n"
    );
    support::raw::exchange(gateway.address(), request).expect(404);
    let line = eventually("the line", || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')));
    let (client, rest) = line.split_once(" - - [").unwrap();
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!((client, time.len()), ("127.0.0.1", "24/Nov/2026:19:51:20 +0000".len()), "{line}");
    let (request, rest) = rest.split_once(" 404 ").unwrap();
    let (bytes, rest) = rest.split_once(' ').unwrap();
    assert!(request == "\"GET /docs/a HTTP/1.1\"" && bytes.parse::<u64>().unwrap() > 0, "{line}");
    assert_eq!(rest, "\"http://a/b\" \"x%22 200 5 %22%5C\"\n");
}

#[tokio::test]
async fn sighup_opens_a_renamed_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, renamed) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let to_file = format!("--access-log={}", file.display());
    let gateway = serve(&folder.path().join("data"), &[&to_file, "--log-format", "json"]);
    let client = Client::new(gateway.address());
    client.get("/docs/before", &[]).await.expect(404);
    eventually("the first line", || (lines(&file).len() == 1).then_some(()));
    fs::rename(&file, &renamed).unwrap();
    client.get("/docs/between", &[]).await.expect(404);
    eventually("a line in the renamed file", || (lines(&renamed).len() == 2).then_some(()));
    gateway.hang_up();
    // The file exists before lines go to it.
    eventually("the reload", || gateway.stderr().contains("reloaded the configuration").then_some(()));
    client.get("/docs/after", &[]).await.expect(404);
    eventually("a line in the new file", || (lines(&file).len() == 1).then_some(()));
    assert_eq!((&lines(&file)[0]["path"], lines(&renamed).len()), (&"/docs/after".into(), 2));
}

#[tokio::test]
async fn a_dash_is_stdout_and_a_file_that_cannot_be_opened_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--access-log=-"]);
    Client::new(gateway.address()).get("/docs/a", &[]).await.expect(404);
    let output = gateway.stop();
    assert!(output.stdout.contains("path=/docs/a") && !output.stderr.contains("path=/docs/a"), "{output:#?}");
    let data = folder.path().to_str().unwrap();
    let missing = format!("--access-log={data}/missing/access.log");
    let refused = support::run(["serve", "--data", data, &missing]);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("can't open --access-log"), "{}", refused.stderr);
}

#[tokio::test]
async fn requests_are_counted_by_outcome() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--require-conditions"]);
    let client = Client::new(gateway.address());
    let tag = client.put("/c/a", &[("if-none-match", "*")], "12345").await.expect(201).etag().to_owned();
    client.put("/c/a", &[("if-none-match", "*")], "x").await.expect(412);
    client.put("/c/a", &[], "x").await.expect(428);
    client.get("/c/a", &[("if-none-match", &tag)]).await.expect(304);
    client.get("/c/a", &[]).await.expect(200);
    client.get("/c/none", &[]).await.expect(404);
    client.request(http::Method::from_bytes(b"BREW").unwrap(), "/c/a", &[], "").await.expect(405);

    let metrics = settled(&client).await;
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"ifmatch_requests_total{method="PUT",status="2xx"} 1"#,
        r#"ifmatch_requests_total{method="PUT",status="4xx"} 2"#,
        r#"ifmatch_requests_total{method="GET",status="3xx"} 1"#,
        r#"ifmatch_requests_total{method="GET",status="4xx"} 1"#,
        r#"ifmatch_requests_total{method="other",status="4xx"} 1"#,
        r#"ifmatch_conditions_total{outcome="met",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="not_modified",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-match"} 0"#,
        r#"ifmatch_conditions_total{outcome="required"} 1"#,
        r#"ifmatch_store_errors_total{kind="unavailable"} 0"#,
        r#"ifmatch_request_duration_seconds_count{method="PUT"} 3"#,
        r"ifmatch_requests_in_flight 1",
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line} is missing in\n{}", metrics.text());
    }
    assert!(value(&metrics, r#"ifmatch_register_seconds_count{operation="swap",outcome="done"}"#) >= 1.0);
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="in"}"#) >= 5.0);
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="out"}"#) >= 5.0);
    assert!(value(&metrics, "ifmatch_connections") >= 1.0);
    assert!(metrics.text().contains("ifmatch_build_info{version="));
}

/// A request is counted once its response has been sent, which the client may notice before the gateway.
async fn settled(client: &Client) -> Answer {
    for _ in 0..3_000 {
        let metrics = client.get("/-/metrics", &[]).await.expect(200);
        if value(&metrics, r#"ifmatch_requests_total{method="other",status="4xx"}"#) >= 1.0
            && value(&metrics, "ifmatch_requests_in_flight") <= 1.0
        {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the requests were never counted");
}

fn value(metrics: &Answer, name: &str) -> f64 {
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{}", metrics.text())).parse().expect("a number")
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
/// The variable with the URL of the collector.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Requests received by a server.
type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// Starts a server that keeps all requests to a path, and responds with 200 and a tag.
async fn recorder(path: &'static str) -> (Server, Received) {
    let received = Received::default();
    let into = Arc::clone(&received);
    let server = Server::start(service_fn(move |request: Request<Incoming>| {
        let into = Arc::clone(&into);
        async move {
            assert_eq!(request.uri().path(), path);
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            into.lock().unwrap().push((head.headers, body));
            Ok::<_, Infallible>(Response::builder().header("etag", "\"1\"").body(Full::<Bytes>::default()).unwrap())
        }
    }));
    (server.await, received)
}

fn launch(args: &[&str], collector: &str) -> Gateway {
    let mut command = Gateway::command();
    command.args(args).args(["--listen", "127.0.0.1:0"]).env(COLLECTOR, collector);
    Gateway::launch(command)
}

/// Returns the spans that a collector has received, and the name of their service.
fn spans(received: &Received) -> Vec<(String, Span)> {
    let mut spans = Vec::new();
    for (headers, body) in received.lock().unwrap().iter() {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        for resource in ExportTraceServiceRequest::decode(body.clone()).unwrap().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let name = attributes.iter().find(|pair| pair.key == "service.name").unwrap().value.clone().unwrap();
            let Some(any_value::Value::StringValue(name)) = name.value else { panic!("{name:?}") };
            let its = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(its.map(|span| (name.clone(), span)));
        }
    }
    spans
}

/// Returns an attribute as text.
fn attribute(span: &Span, key: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key == key)?;
    Some(match pair.value.clone()?.value? {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => panic!("{key}: {other:?}"),
    })
}

fn hex(id: &[u8]) -> String {
    id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_span_joins_the_trace_of_the_client_and_is_the_parent_of_the_upstream() {
    let (collector, exported) = recorder("/v1/traces").await;
    let (upstream, forwarded) = recorder("/page").await;
    let [collector_url, upstream_url] = [&collector, &upstream].map(|server| format!("http://{}", server.address()));
    let mut gateway = launch(&["proxy", "--upstream", &upstream_url], &collector_url);
    let client = Client::new(gateway.address());
    for flags in ["01", "00"] {
        let parent = format!("00-{TRACE}-{PARENT}-{flags}");
        let headers = [("traceparent", parent.as_str()), ("tracestate", "a=1"), ("if-match", "\"1\"")];
        let answer = client.request(Method::PUT, "/page?sig=secret", &headers, "content").await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    // The last spans are sent before the end.
    assert!(gateway.stop().status.success());

    let spans = spans(&exported);
    let [(service, span)] = spans.as_slice() else { panic!("the second request is not sampled: {spans:?}") };
    assert_eq!((service.as_str(), span.name.as_str()), ("ifmatch", "PUT"));
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    for (key, expected) in [
        ("http.request.method", "PUT"),
        ("url.path", "/page"),
        ("url.scheme", "http"),
        ("client.address", "127.0.0.1"),
        ("http.response.status_code", "200"),
        ("http.request.body.size", "7"),
        ("ifmatch.condition", "if-match"),
        ("ifmatch.decision", "met"),
    ] {
        assert_eq!(attribute(span, key).as_deref(), Some(expected), "{key} of {span:?}");
    }
    assert!(!format!("{span:?}").contains("secret"), "{span:?}");

    let forwarded = forwarded.lock().unwrap();
    let [(sampled, _), (unsampled, _)] = forwarded.as_slice() else { panic!("{forwarded:?}") };
    assert_eq!(sampled["traceparent"], format!("00-{TRACE}-{}-01", hex(&span.span_id)));
    let unsampled = unsampled["traceparent"].to_str().unwrap();
    assert!(unsampled.starts_with(&format!("00-{TRACE}-")) && unsampled.ends_with("-00"), "{unsampled}");
    assert!(forwarded.iter().all(|(headers, _)| headers["tracestate"] == "a=1"), "{forwarded:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_spans_are_sent_upon_either_signal() {
    for signal in ["-INT", "-TERM"] {
        let (collector, exported) = recorder("/v1/traces").await;
        let url = format!("http://{}", collector.address());
        let mut gateway = launch(&["serve", "--store", "memory://"], &url);
        let answer = Client::new(gateway.address()).request(Method::GET, "/docs/a", &[], "").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert!(Command::new("kill").args([signal, &gateway.pid().to_string()]).status().unwrap().success());
        assert!(gateway.finished().status.success(), "{signal}");
        assert_eq!(spans(&exported).len(), 1, "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_write_has_its_decision_and_a_trace_of_its_own() {
    let (collector, exported) = recorder("/v1/traces").await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Gateway::command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    command.env(COLLECTOR, format!("http://{}", collector.address()));
    command.env("OTEL_SERVICE_NAME", "store").env("OTEL_BSP_SCHEDULE_DELAY", "10");
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    let headers = [("if-match", "\"0\""), ("traceparent", "00-zz-1-01"), ("tracestate", "a=1")];
    let answer = client.request(Method::PUT, "/docs/a", &headers, "content").await;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(client.request(Method::GET, "/-/health", &[], "").await.status, StatusCode::OK);
    // Sent without being asked for.
    super::eventually("a span is sent", || (!spans(&exported).is_empty()).then_some(()));
    assert!(gateway.stop().status.success());

    let spans = spans(&exported);
    let [(service, span)] = spans.as_slice() else { panic!("endpoints have no spans: {spans:?}") };
    assert_eq!(service, "store");
    assert_eq!(span.parent_span_id, [0; 0]);
    assert_eq!(span.trace_id.len(), 16);
    assert_eq!(attribute(span, "ifmatch.decision").as_deref(), Some("failed"));
    assert_eq!(attribute(span, "ifmatch.request_id").as_deref(), Some(answer.header("x-request-id")));
}

/// Each request would wait if the queue of one span did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_no_request() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Gateway::command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    command.env(COLLECTOR, format!("http://{}", collector.local_addr().unwrap()));
    command.env("OTEL_BSP_MAX_QUEUE_SIZE", "1").env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1");
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    for _ in 0..100 {
        assert_eq!(client.request(Method::GET, "/docs/a", &[], "").await.status, StatusCode::NOT_FOUND);
    }
    let finished = gateway.stop();
    assert!(finished.status.success(), "{finished:?}");
}
