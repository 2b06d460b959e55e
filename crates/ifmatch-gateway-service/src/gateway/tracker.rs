//! Tracking of a request from its head to the end of its response: metrics, the access log and its slot.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{HOST, REFERER, USER_AGENT};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use http_body::{Body, Frame, SizeHint};
use ifmatch_cache::policy::cache_status::CACHE_STATUS;
use ifmatch_core::fields::lines;
use ifmatch_gateway_config::access::CredentialKind;
use ifmatch_http_server::{BodyProgress, BoxError, RequestBody, RequestContext, RequestSlot};
use ifmatch_proxy::LastExchange;
use ifmatch_runtime::{Clock, SystemClock};
use metrics::Counter;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

use crate::conflicts::{ConflictRefusal, RequestAttempt};
use crate::metrics::conditions::{ConditionSet, is_by_lease};
use crate::metrics::{FinishedRequest, UncountedRequest, method_index};
use crate::request_id;
use crate::state::AppState;
use crate::traces::{RequestSpan, SpanAttributes};

/// The target of the access log.
pub const ACCESS: &str = "ifmatch::access";

/// The clients that proxies in front have seen.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Tracks a request. Dropping it updates the metrics, writes the access log and releases the request's slot.
pub(crate) struct RequestTracker {
    state: Arc<AppState>,
    /// `false` for a request that no client sent: see [`UncountedRequest`].
    is_counted: bool,
    started: Instant,
    slot: Option<RequestSlot>,
    /// Index of its method: see [`method_index`].
    method: usize,
    credentials: CredentialKind,
    conditions: ConditionSet,
    /// `true` if a lease caused the refusal.
    by_lease: bool,
    /// The request, if it can be refused because of a conflict.
    attempt: Option<Box<RequestAttempt>>,
    status: Option<StatusCode>,
    bytes_out: u64,
    request_body: Option<Arc<BodyProgress>>,
    line: Option<Box<AccessLine>>,
}

/// Fields of the access log and of the span, kept only if one of them is enabled.
struct AccessLine {
    span: Option<RequestSpan>,
    secure: bool,
    client: SocketAddr,
    /// Client information from a proxy in front, if trusted.
    forwarded_for: Option<String>,
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<String>,
    /// Without a query, which may contain a signature.
    referer: Option<String>,
    user_agent: Option<String>,
    id: HeaderValue,
    /// The `Cache-Status` of the cache, if there is one.
    cache_status: Option<HeaderValue>,
    /// The last exchange with an upstream, of a proxy.
    exchange: LastExchange,
}

impl RequestTracker {
    /// Starts to track a request.
    pub(crate) fn start(
        state: &Arc<AppState>,
        context: &RequestContext,
        request: &Request<RequestBody>,
        id: &HeaderValue,
        span: Option<RequestSpan>,
    ) -> Self {
        let is_counted = request.extensions().get::<UncountedRequest>().is_none();
        if is_counted {
            state.metrics.in_flight.increment(1.0);
        }
        let upstreams = state.upstreams.as_ref();
        let span = span.filter(RequestSpan::is_recording);
        let line = (span.is_some() || is_counted && enabled!(target: ACCESS, Level::DEBUG))
            .then(|| AccessLine {
                span,
                secure: context.is_secure(),
                client: context.remote_address(),
                forwarded_for: upstreams
                    .filter(|upstreams| upstreams.trusts_forwarded)
                    .and_then(|_| forwarded_for(request.headers())),
                method: request.method().clone(),
                uri: request.uri().clone(),
                version: request.version(),
                host: host(request),
                referer: text(request.headers(), REFERER).map(without_query),
                user_agent: text(request.headers(), USER_AGENT),
                id: id.clone(),
                cache_status: None,
                exchange: LastExchange::default(),
            })
            .map(Box::new);
        let credentials = CredentialKind::of(request);
        let host_of_proxy = || upstreams.and_then(|_| host(request));
        let client = context.remote_address().ip();
        Self {
            state: Arc::clone(state),
            is_counted,
            started: Instant::now(),
            slot: None,
            method: method_index(request.method()),
            credentials,
            conditions: ConditionSet::of(request.headers()),
            by_lease: false,
            attempt: RequestAttempt::of(request, client, credentials.name(), host_of_proxy),
            status: None,
            bytes_out: 0,
            request_body: request.body().progress(),
            line,
        }
    }

    /// Takes a request slot. Returns `false` if there is none for this client.
    pub(crate) fn take_slot(&mut self, context: &RequestContext) -> bool {
        self.slot = context.take_slot();
        self.slot.is_some()
    }

    /// Returns the place for the last exchange with an upstream, if it is logged.
    pub(crate) fn exchange(&self) -> Option<LastExchange> {
        self.line.as_ref().map(|line| line.exchange.clone())
    }

    /// Returns `true` for a HEAD request. Its response has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.method == method_index(&Method::HEAD)
    }

    /// Returns the progress of the request body, or `None` if that is empty.
    pub(crate) fn request_body(&self) -> Option<&BodyProgress> {
        self.request_body.as_deref()
    }

    /// Records the head of the response. A rejected request no longer needs its slot.
    pub(crate) fn responded<B>(&mut self, response: &Response<B>) {
        let status = response.status();
        self.status = Some(status);
        if status.is_client_error() {
            // Only a short message remains to be sent, for which a rejected client may take its time.
            self.slot = None;
        }
        if let Some(line) = &mut self.line {
            // The last one is ours. Earlier ones come from caches closer to the origin.
            line.cache_status = lines(response.headers(), CACHE_STATUS).last().cloned();
        }
        if matches!(
            status,
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT
        ) && is_by_lease(response.headers())
        {
            self.by_lease = true;
            if let Some(blobs) = &self.state.blobs {
                blobs.store.refused();
            }
        }
        if let Some(attempt) = self
            .attempt
            .take()
            .filter(|_| ConflictRefusal::is_conflict(status))
        {
            let refusal = ConflictRefusal {
                status,
                headers: response.headers(),
                by_lease: self.by_lease,
            };
            self.state
                .conflicts
                .add(*attempt, &refusal, SystemClock.now(), SystemClock.wall());
        }
    }

    /// Records that this number of bytes of the response body was sent.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }

    /// Writes the line of the access log, and ends the span.
    fn log(&self, line: AccessLine, duration: Duration, bytes_in: u64) {
        let decision = self
            .status
            .and_then(|status| self.conditions.decision(status, self.by_lease));
        let cache_status = line
            .cache_status
            .as_ref()
            .and_then(|status| status.to_str().ok());
        let id = line.id.to_str().unwrap_or_default();
        let exchange = line.exchange.get();
        debug!(
            target: ACCESS,
            client = %line.client,
            forwarded_for = line.forwarded_for.as_deref(),
            method = %line.method,
            host = line.host.as_deref(),
            path = %request_id::escape(line.uri.path()),
            version = ?line.version,
            credentials = self.credentials.name(),
            status = self.status.map_or(0, |status| status.as_u16()),
            condition = self.conditions.names(),
            decision,
            duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            bytes_in,
            bytes_out = self.bytes_out,
            id,
            cache_status,
            upstream = exchange.as_ref().map(|exchange| exchange.server.as_str()),
            upstream_status = exchange.as_ref().map(|exchange| exchange.outcome.map_or(0, |status| status.as_u16())),
            upstream_us = exchange.as_ref().map(|exchange| u64::try_from(exchange.duration.as_micros()).unwrap_or(u64::MAX)),
            referer = line.referer.as_deref(),
            user_agent = line.user_agent.as_deref(),
            "request"
        );
        if let Some(span) = line.span {
            span.end(SpanAttributes {
                method: &line.method,
                path: request_id::escape(line.uri.path()).to_string(),
                scheme: if line.secure { "https" } else { "http" },
                client: line.client.ip().to_string(),
                status: self.status,
                condition: self.conditions.names(),
                decision,
                bytes_in,
                bytes_out: self.bytes_out,
                id: id.to_owned(),
                cache_status: cache_status.map(str::to_owned),
            });
        }
    }
}

impl Drop for RequestTracker {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let metrics = &self.state.metrics;
        let duration = self.started.elapsed();
        let bytes_in = self.request_body.as_ref().map_or(0, |body| body.received());
        metrics.in_flight.decrement(1.0);
        count(&metrics.bytes_in, bytes_in);
        count(&metrics.bytes_out, self.bytes_out);
        metrics.finished(&FinishedRequest {
            method: self.method,
            credentials: self.credentials,
            status: self.status,
            conditions: self.conditions,
            by_lease: self.by_lease,
            seconds: duration.as_secs_f64(),
        });
        if let Some(line) = self.line.take() {
            self.log(*line, duration, bytes_in);
        }
    }
}

/// Returns the host that a request names.
fn host<B>(request: &Request<B>) -> Option<String> {
    let named = request
        .uri()
        .authority()
        .map(|authority| request_id::escape(authority.as_str()).to_string());
    named.or_else(|| text(request.headers(), HOST))
}

/// Returns the first line of a field, escaped.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    lines(headers, name)
        .next()
        .map(|value| request_id::escape_text(value.as_bytes()))
}

/// Returns a URL without its query and fragment.
fn without_query(mut url: String) -> String {
    url.truncate(url.find(['?', '#']).unwrap_or(url.len()));
    url
}

/// Returns the clients named by the proxies in front, closest last, in visible ASCII.
fn forwarded_for(headers: &HeaderMap) -> Option<String> {
    let named: Vec<_> = lines(headers, X_FORWARDED_FOR)
        .map(|line| String::from_utf8_lossy(line.as_bytes()))
        .collect();
    (!named.is_empty()).then(|| request_id::escape(&named.join(",")).to_string())
}

/// Increments a counter unless `bytes` is zero, which saves contention: most requests have no body.
fn count(counter: &Counter, bytes: u64) {
    if bytes > 0 {
        counter.increment(bytes);
    }
}

pin_project! {
    /// The body of a response, with the tracker of its request.
    pub struct ResponseBody<B> {
        #[pin]
        content: TrackedContent<B>,
        tracker: RequestTracker,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum TrackedContent<B> {
        Inner { #[pin] body: B },
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    /// Wraps a body of the inner service.
    pub(crate) fn inner(body: B, tracker: RequestTracker) -> Self {
        Self {
            content: TrackedContent::Inner { body },
            tracker,
        }
    }

    /// Creates a body of the gateway itself.
    pub(crate) fn own(bytes: Bytes, tracker: RequestTracker) -> Self {
        Self {
            content: TrackedContent::Own {
                bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            },
            tracker,
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = match this.content.project() {
            ContentProjection::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            ContentProjection::Own { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        };
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.tracker
                .sent(frame.data_ref().map_or(0, |data| data.remaining() as u64));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            TrackedContent::Inner { body } => body.is_end_stream(),
            TrackedContent::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            TrackedContent::Inner { body } => body.size_hint(),
            TrackedContent::Own { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}
