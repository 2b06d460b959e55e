//! Traces: a span for each request, sent to an OpenTelemetry collector.
//!
//! ```text
//!   request ── traceparent ──▶ span ── traceparent of the span ──▶ upstream
//!                               │ end of the response
//!                               ▼
//!                             queue, bounded: a full one drops the span
//!                               │ a thread of its own, in batches
//!                               ▼
//!                             collector, OTLP by HTTP
//! ```

#[cfg_attr(not(feature = "otlp"), path = "disabled.rs")]
mod otlp;

use http::{Method, StatusCode};

pub(crate) use otlp::RequestSpan;
pub use otlp::Traces;

/// The attributes of a request's span, at its end.
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is sent"))]
pub(crate) struct SpanAttributes<'a> {
    /// Method.
    pub(crate) method: &'a Method,
    /// Path without the query, which may contain a signature, in visible ASCII.
    pub(crate) path: String,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// IP address of the client.
    pub(crate) client: String,
    /// Status, unless the client disconnected before the response.
    pub(crate) status: Option<StatusCode>,
    /// The condition headers.
    pub(crate) condition: Option<String>,
    /// The outcome of the conditions or of a lease.
    pub(crate) decision: Option<&'static str>,
    /// Length of the received content in bytes.
    pub(crate) bytes_in: u64,
    /// Length of the sent content in bytes.
    pub(crate) bytes_out: u64,
    /// `X-Request-Id`.
    pub(crate) id: String,
    /// `Cache-Status`.
    pub(crate) cache_status: Option<String>,
}
