//! A request's ticket: held from its head to the end of its answer, settled when dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use ifmatch_cache::policy::cache_status::CACHE_STATUS;
use ifmatch_core::fields::lines;
use ifmatch_proxy::Client;
use metrics::Counter;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

use crate::activity::InFlight;
use crate::conditions::{Conditions, is_by_lease};
use crate::entrance::Entrance;
use crate::gateway::Desk;
use crate::logged_path;
use crate::metrics::{Finished, method_index};
use crate::request_body::Fate;

/// The target of the line that each request leaves in the log.
pub(crate) const ACCESS: &str = "ifmatch::access";

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whatever becomes of the request, dropping this counts it, logs it, and makes room for the next.
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    in_flight: InFlight,
    started: Instant,
    /// It has one of the places for requests.
    entered: bool,
    method: usize,
    conditions: Conditions,
    by_lease: bool,
    status: Option<StatusCode>,
    bytes_out: u64,
    fate: Option<Arc<Fate>>,
    line: Option<Box<Line>>,
}

/// What the log says of a request; kept only if it will be said.
struct Line {
    client: SocketAddr,
    /// Client information from a proxy in front, if trusted.
    forwarded_for: Option<String>,
    method: Method,
    uri: Uri,
    id: HeaderValue,
    /// What the cache did, if there is one.
    cache_status: Option<HeaderValue>,
}

impl Ticket {
    /// Opens the ticket of a request.
    pub(crate) fn open<B>(
        desk: &Arc<Desk>,
        in_flight: InFlight,
        client: &Client,
        request: &Request<B>,
        id: &HeaderValue,
    ) -> Self {
        desk.metrics.in_flight.increment(1.0);
        desk.began(in_flight.peer());
        let line = enabled!(target: ACCESS, Level::DEBUG)
            .then(|| Line {
                client: client.address,
                forwarded_for: desk.trusts_forwarded.then(|| forwarded_for(request.headers())).flatten(),
                method: request.method().clone(),
                uri: request.uri().clone(),
                id: id.clone(),
                cache_status: None,
            })
            .map(Box::new);
        Self {
            desk: Arc::clone(desk),
            in_flight,
            started: Instant::now(),
            entered: false,
            method: method_index(request.method()),
            conditions: Conditions::of(request.headers()),
            by_lease: false,
            status: None,
            bytes_out: 0,
            fate: None,
            line,
        }
    }

    /// Takes a place among the requests worked on; `false` if there is none.
    pub(crate) fn enter(&mut self) -> bool {
        self.entered = self.desk.enter(self.in_flight.peer());
        self.entered
    }

    /// Returns access to a slot, for a request that takes it later.
    pub(crate) fn entrance(&self) -> Entrance {
        Entrance::new(Arc::clone(&self.desk), Arc::clone(self.in_flight.peer()))
    }

    /// Whether the request is a HEAD, whose answer has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.method == method_index(&Method::HEAD)
    }

    /// Notes what will be known of the request's body.
    pub(crate) fn expect_body(&mut self, fate: Option<Arc<Fate>>) {
        self.fate = fate;
    }

    /// What is known of the request's body by now, unless that is empty.
    pub(crate) fn fate(&self) -> Option<&Fate> {
        self.fate.as_deref()
    }

    /// Notes that the answer has begun.
    pub(crate) fn answered<B>(&mut self, response: &Response<B>) {
        let status = response.status();
        self.status = Some(status);
        if let Some(line) = &mut self.line {
            // The last one is ours: those before it came from caches closer to the origin.
            line.cache_status = lines(response.headers(), CACHE_STATUS).last().cloned();
        }
        if matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT) && is_by_lease(response.headers()) {
            self.by_lease = true;
            if let Some(blobs) = &self.desk.blobs {
                blobs.refused();
            }
        }
    }

    /// Notes that so many bytes of the answer's body were handed over.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.entered {
            self.desk.leave(self.in_flight.peer());
        }
        self.desk.ended(self.in_flight.peer());
        let metrics = &self.desk.metrics;
        let duration = self.started.elapsed();
        let bytes_in = self.fate.as_ref().map_or(0, |fate| fate.received());
        metrics.in_flight.decrement(1.0);
        count(&metrics.bytes_in, bytes_in);
        count(&metrics.bytes_out, self.bytes_out);
        metrics.finished(&Finished {
            method: self.method,
            status: self.status,
            conditions: self.conditions,
            by_lease: self.by_lease,
            seconds: duration.as_secs_f64(),
        });
        if let Some(line) = &self.line {
            debug!(
                target: ACCESS,
                client = %line.client,
                forwarded_for = line.forwarded_for.as_deref(),
                method = %line.method,
                path = %logged_path::show(line.uri.path()),
                status = self.status.map_or(0, |status| status.as_u16()),
                duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
                bytes_in,
                bytes_out = self.bytes_out,
                id = line.id.to_str().unwrap_or_default(),
                cache_status = line.cache_status.as_ref().and_then(|status| status.to_str().ok()),
                "request"
            );
        }
    }
}

/// Returns the clients named by the proxies in front, closest last, in visible ASCII.
fn forwarded_for(headers: &HeaderMap) -> Option<String> {
    let named: Vec<_> = lines(headers, X_FORWARDED_FOR).map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    (!named.is_empty()).then(|| logged_path::show(&named.join(",")).to_string())
}

/// Most requests have no body, and many answers: a counter that is shared by all threads is not touched for nothing.
fn count(counter: &Counter, bytes: u64) {
    if bytes > 0 {
        counter.increment(bytes);
    }
}
