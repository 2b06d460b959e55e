//! Traces: the spans that a collector receives.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use support::{Client, Gateway, Server, eventually, kill};
use tower::service_fn;

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
            Ok::<_, Infallible>(
                Response::builder()
                    .header("etag", "\"1\"")
                    .body(Full::<Bytes>::default())
                    .unwrap(),
            )
        }
    }));
    (server.await, received)
}

fn launch(args: &[&str], collector: &str) -> Gateway {
    let mut command = Gateway::command();
    command
        .args(args)
        .args(["--listen", "127.0.0.1:0"])
        .env(COLLECTOR, collector);
    Gateway::launch(command)
}

/// Returns the spans that a collector has received, and the name of their service.
fn spans(received: &Received) -> Vec<(String, Span)> {
    let mut spans = Vec::new();
    for (headers, body) in received.lock().unwrap().iter() {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        for resource in ExportTraceServiceRequest::decode(body.clone())
            .unwrap()
            .resource_spans
        {
            let attributes = resource.resource.unwrap().attributes;
            let name = attributes
                .iter()
                .find(|pair| pair.key == "service.name")
                .unwrap()
                .value
                .clone()
                .unwrap();
            let Some(any_value::Value::StringValue(name)) = name.value else {
                panic!("{name:?}")
            };
            let its = resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans);
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
    id.iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_span_joins_the_trace_of_the_client_and_is_the_parent_of_the_upstream() {
    let (collector, exported) = recorder("/v1/traces").await;
    let (upstream, forwarded) = recorder("/page").await;
    let [collector_url, upstream_url] =
        [&collector, &upstream].map(|server| format!("http://{}", server.address()));
    let mut gateway = launch(&["proxy", "--upstream", &upstream_url], &collector_url);
    let client = Client::new(gateway.address());
    for flags in ["01", "00"] {
        let parent = format!("00-{TRACE}-{PARENT}-{flags}");
        let headers = [
            ("traceparent", parent.as_str()),
            ("tracestate", "a=1"),
            ("if-match", "\"1\""),
        ];
        let answer = client
            .request(Method::PUT, "/page?sig=secret", &headers, "content")
            .await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    // The last spans are sent before the end.
    assert!(gateway.stop().status.success());

    let spans = spans(&exported);
    let [(service, span)] = spans.as_slice() else {
        panic!("the second request is not sampled: {spans:?}")
    };
    assert_eq!((service.as_str(), span.name.as_str()), ("ifmatch", "PUT"));
    assert_eq!(
        (hex(&span.trace_id), hex(&span.parent_span_id)),
        (TRACE.to_owned(), PARENT.to_owned())
    );
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
        assert_eq!(
            attribute(span, key).as_deref(),
            Some(expected),
            "{key} of {span:?}"
        );
    }
    assert!(!format!("{span:?}").contains("secret"), "{span:?}");

    let forwarded = forwarded.lock().unwrap();
    let [(sampled, _), (unsampled, _)] = forwarded.as_slice() else {
        panic!("{forwarded:?}")
    };
    assert_eq!(
        sampled["traceparent"],
        format!("00-{TRACE}-{}-01", hex(&span.span_id))
    );
    let unsampled = unsampled["traceparent"].to_str().unwrap();
    assert!(
        unsampled.starts_with(&format!("00-{TRACE}-")) && unsampled.ends_with("-00"),
        "{unsampled}"
    );
    assert!(
        forwarded
            .iter()
            .all(|(headers, _)| headers["tracestate"] == "a=1"),
        "{forwarded:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_spans_are_sent_upon_either_signal() {
    for signal in ["INT", "TERM"] {
        let (collector, exported) = recorder("/v1/traces").await;
        let url = format!("http://{}", collector.address());
        let mut gateway = launch(&["serve", "--store", "memory://"], &url);
        let answer = Client::new(gateway.address())
            .request(Method::GET, "/docs/a", &[], "")
            .await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        kill(signal, &gateway.pid().to_string());
        assert!(gateway.finished().status.success(), "{signal}");
        assert_eq!(spans(&exported).len(), 1, "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_write_has_its_decision_and_a_trace_of_its_own() {
    let (collector, exported) = recorder("/v1/traces").await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Gateway::command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path());
    command.env(COLLECTOR, format!("http://{}", collector.address()));
    command
        .env("OTEL_SERVICE_NAME", "store")
        .env("OTEL_BSP_SCHEDULE_DELAY", "10");
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    let headers = [
        ("if-match", "\"0\""),
        ("traceparent", "00-zz-1-01"),
        ("tracestate", "a=1"),
    ];
    let answer = client
        .request(Method::PUT, "/docs/a", &headers, "content")
        .await;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(
        client
            .request(Method::GET, "/-/health", &[], "")
            .await
            .status,
        StatusCode::OK
    );
    // Sent without being asked for.
    eventually("a span is sent", || {
        (!spans(&exported).is_empty()).then_some(())
    });
    assert!(gateway.stop().status.success());

    let spans = spans(&exported);
    let [(service, span)] = spans.as_slice() else {
        panic!("endpoints have no spans: {spans:?}")
    };
    assert_eq!(service, "store");
    assert_eq!(span.parent_span_id, [0; 0]);
    assert_eq!(span.trace_id.len(), 16);
    assert_eq!(
        attribute(span, "ifmatch.decision").as_deref(),
        Some("failed")
    );
    assert_eq!(
        attribute(span, "ifmatch.request_id").as_deref(),
        Some(answer.header("x-request-id"))
    );
}

/// Each request would wait if the queue of one span did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_no_request() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Gateway::command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path());
    command.env(
        COLLECTOR,
        format!("http://{}", collector.local_addr().unwrap()),
    );
    command
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "1")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1");
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    for _ in 0..100 {
        assert_eq!(
            client.request(Method::GET, "/docs/a", &[], "").await.status,
            StatusCode::NOT_FOUND
        );
    }
    let finished = gateway.stop();
    assert!(finished.status.success(), "{finished:?}");
}
