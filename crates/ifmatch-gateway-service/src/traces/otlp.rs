//! Spans in OpenTelemetry's format, which the library queues and sends.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::trust::Trust;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector, HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use url::Url;

use super::SpanAttributes;

/// Time limit of a request to the collector.
const EXPORT: Duration = Duration::from_secs(10);
/// Time limit for sending the last spans when the gateway stops.
const LAST: Duration = Duration::from_secs(3);

const TRACESTATE: &str = "tracestate";
/// Methods that are the name of their spans. Clients must not create new names.
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The span of a request.
#[derive(Debug)]
pub(crate) struct RequestSpan(opentelemetry_sdk::trace::Span);

impl Traces {
    /// Starts to send spans to this URL, on a thread of its own. The current runtime must last until [`stop`](Self::stop).
    ///
    /// # Errors
    /// Fails if the variables of OpenTelemetry are invalid, or the system has no certificates for `https`.
    pub(crate) fn start(endpoint: &Url) -> Result<Self, Error> {
        let client = Trust::default().client(endpoint, HeaderMap::new(), Some(EXPORT))?;
        let client = OnRuntime {
            client,
            runtime: Handle::current(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.as_str())
            .build()
            .map_err(|error| Error::usage(format!("can't send traces: {error}")))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("ifmatch");
        Ok(Self { provider, tracer })
    }

    /// Begins the span of a request, below the one in its `traceparent`, if it has any.
    pub(crate) fn begin<B>(&self, request: &Request<B>) -> RequestSpan {
        let headers = HeaderExtractor(request.headers());
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
        let span = self
            .tracer
            .span_builder(name(request.method()))
            .with_kind(SpanKind::Server);
        RequestSpan(span.start_with_context(&self.tracer, &parent))
    }

    /// Sends the spans that are still queued.
    pub async fn stop(&self) {
        let provider = self.provider.clone();
        // Waits for the exporting thread, which needs the runtime.
        let stopped = spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "the last traces may be lost");
        }
    }
}

impl RequestSpan {
    /// Returns `true` if the span will be sent.
    pub(crate) fn is_recording(&self) -> bool {
        self.0.is_recording()
    }

    /// Makes the span the parent of the spans of the server that gets the request.
    pub(crate) fn put_into(&self, headers: &mut HeaderMap) {
        let context = Context::new().with_remote_span_context(self.0.span_context().clone());
        TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
        if headers
            .get(TRACESTATE)
            .is_some_and(http::HeaderValue::is_empty)
        {
            headers.remove(TRACESTATE);
        }
    }

    /// Ends the span, and queues it.
    pub(crate) fn end(mut self, attributes: SpanAttributes<'_>) {
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let all = [
            Some(KeyValue::new(
                "http.request.method",
                name(attributes.method),
            )),
            Some(KeyValue::new("url.path", attributes.path)),
            Some(KeyValue::new("url.scheme", attributes.scheme)),
            Some(KeyValue::new("client.address", attributes.client)),
            attributes.status.map(|status| {
                KeyValue::new("http.response.status_code", i64::from(status.as_u16()))
            }),
            Some(KeyValue::new(
                "http.request.body.size",
                number(attributes.bytes_in),
            )),
            Some(KeyValue::new(
                "http.response.body.size",
                number(attributes.bytes_out),
            )),
            attributes
                .condition
                .map(|names| KeyValue::new("ifmatch.condition", names)),
            attributes
                .decision
                .map(|decision| KeyValue::new("ifmatch.decision", decision)),
            attributes
                .cache_status
                .map(|status| KeyValue::new("ifmatch.cache_status", status)),
            Some(KeyValue::new("ifmatch.request_id", attributes.id)),
        ];
        self.0.set_attributes(all.into_iter().flatten());
        match attributes.status {
            Some(status) if status.is_server_error() => self.0.set_status(Status::error("")),
            Some(_) => {}
            None => self.0.set_status(Status::error("the client disconnected")),
        }
        self.0.end();
    }
}

/// Returns the name of a span.
fn name(method: &Method) -> &'static str {
    METHODS
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("_OTHER")
}

/// Describes this process: by the variables `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, and otherwise as `ifmatch`.
fn resource() -> Resource {
    let named = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let has_name = named
        .get(&Key::new("service.name"))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if has_name {
        return named;
    }
    let attributes = named
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_attributes(attributes)
        .with_service_name("ifmatch")
        .build()
}

/// A client whose requests run on the runtime of the gateway, as the exporting thread has none.
#[derive(Debug)]
struct OnRuntime {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime
            .spawn(async move { client.send_bytes(request).await })
            .await?
    }
}
