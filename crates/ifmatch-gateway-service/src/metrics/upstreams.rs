//! Metrics of upstreams. The labels are routes and servers of the configuration, so their number is limited.

use std::collections::HashMap;

use http::StatusCode;
use ifmatch_proxy::{Proxy, ProxyErrorKind, ProxyEvent, ProxyObserver, UpstreamState};
use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::table::upstreams::{
    BREAKER_OPEN, ERRORS, HEALTHY, IN_FLIGHT, REJECTED, RESPONSES, SECONDS, WAITING,
};

/// Values of the label `status`.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Values of the label `reason`.
const REASONS: [&str; 2] = ["full", "hanging"];
/// Values of the label `kind`.
const KINDS: [&str; 3] = ["unreachable", "broken", "timeout"];

/// Handles of the metrics of all upstreams, by route.
pub struct UpstreamMetrics(HashMap<String, RouteMetrics>);

/// Handles of the metrics of a route.
struct RouteMetrics {
    /// By reason.
    rejected: [Counter; REASONS.len()],
    /// By name.
    servers: HashMap<String, ServerMetrics>,
}

/// Handles of the metrics of a server.
struct ServerMetrics {
    seconds: Histogram,
    responses: [Counter; CLASSES.len()],
    errors: [Counter; KINDS.len()],
}

impl UpstreamMetrics {
    /// Registers the metrics of these upstreams.
    pub fn new(upstreams: &[UpstreamState]) -> Self {
        Self(
            upstreams
                .iter()
                .map(|upstream| (upstream.route.clone(), RouteMetrics::new(upstream)))
                .collect(),
        )
    }
}

impl RouteMetrics {
    fn new(upstream: &UpstreamState) -> Self {
        let route = &upstream.route;
        let servers = upstream
            .servers
            .iter()
            .map(|server| (server.name.clone(), ServerMetrics::new(route, &server.name)));
        let rejected =
            REASONS.map(|reason| counter!(REJECTED, "route" => route.clone(), "reason" => reason));
        Self {
            rejected,
            servers: servers.collect(),
        }
    }
}

impl ServerMetrics {
    fn new(route: &str, server: &str) -> Self {
        let of = [("route", route.to_owned()), ("server", server.to_owned())];
        let with = |name: &'static str, value: &'static str| {
            [of.as_slice(), &[(name, value.to_owned())]].concat()
        };
        Self {
            seconds: histogram!(SECONDS, &of),
            responses: CLASSES.map(|class| counter!(RESPONSES, &with("status", class))),
            errors: KINDS.map(|kind| counter!(ERRORS, &with("kind", kind))),
        }
    }

    /// Counts an exchange with the server.
    fn count(&self, outcome: Result<StatusCode, ProxyErrorKind>) {
        match outcome {
            Ok(status) => self.responses
                [usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1]
                .increment(1),
            Err(ProxyErrorKind::Unreachable) => self.errors[0].increment(1),
            Err(ProxyErrorKind::Broken) => self.errors[1].increment(1),
            Err(ProxyErrorKind::Timeout) => self.errors[2].increment(1),
            // The client's error.
            Err(_) => {}
        }
    }
}

impl ProxyObserver for UpstreamMetrics {
    fn observe(&self, event: ProxyEvent<'_>) {
        match event {
            ProxyEvent::Exchange {
                route, exchange, ..
            } => {
                let metrics = self.0.get(route);
                let name = exchange.server.as_str();
                if let Some(server) = metrics.and_then(|metrics| metrics.servers.get(name)) {
                    server.count(exchange.outcome);
                    if exchange.outcome.is_ok() {
                        server.seconds.record(exchange.duration.as_secs_f64());
                    }
                }
            }
            ProxyEvent::Rejected { route, reason, .. } => {
                if let Some(metrics) = self.0.get(route) {
                    let is_hanging = reason == ProxyErrorKind::Unavailable;
                    metrics.rejected[usize::from(is_hanging)].increment(1);
                }
            }
            _ => {}
        }
    }
}

/// Sets the gauges to the current state.
pub(crate) fn update(proxy: &Proxy) {
    set(&proxy.upstreams());
}

/// Sets the gauges of upstreams that are about to be replaced to zero, since some may not be used again.
pub fn clear(proxy: &Proxy) {
    let mut upstreams = proxy.upstreams();
    for upstream in &mut upstreams {
        upstream.waiting = 0;
        for server in &mut upstream.servers {
            (server.healthy, server.breaker_open, server.requests) = (false, false, 0);
        }
    }
    set(&upstreams);
}

/// Sets the gauges to these states.
#[expect(
    clippy::cast_precision_loss,
    reason = "levels, of which fifteen digits are enough"
)]
fn set(upstreams: &[UpstreamState]) {
    for upstream in upstreams {
        let route = &upstream.route;
        gauge!(WAITING, "route" => route.clone()).set(upstream.waiting as f64);
        for server in &upstream.servers {
            let of = [("route", route.clone()), ("server", server.name.clone())];
            gauge!(HEALTHY, &of).set(if server.healthy { 1.0 } else { 0.0 });
            gauge!(BREAKER_OPEN, &of).set(if server.breaker_open { 1.0 } else { 0.0 });
            gauge!(IN_FLIGHT, &of).set(server.requests as f64);
        }
    }
}
