//! Events at upstreams, and their current state, for metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::uri::Authority;

use crate::ProxyErrorKind;

/// An event at an upstream.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ProxyEvent<'a> {
    /// A request was sent to a server, or couldn't be sent. A request that is sent again counts again.
    #[non_exhaustive]
    Exchange {
        /// Route of the upstream, as configured.
        route: &'a str,
        /// The attempt.
        exchange: &'a Exchange,
    },
    /// A request was rejected because no server of an upstream could take it.
    #[non_exhaustive]
    Rejected {
        /// Route of the upstream, as configured.
        route: &'a str,
        /// [`Overloaded`](ProxyErrorKind::Overloaded) or [`Unavailable`](ProxyErrorKind::Unavailable).
        reason: ProxyErrorKind,
    },
}

/// Receives a proxy's events, for example to count them. Mustn't block.
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_proxy::{ProxyEvent, Proxy, Upstream};
///
/// let log = |event: ProxyEvent<'_>| println!("{event:?}");
/// let builder = Proxy::builder().route("/", Upstream::parse(&["http://127.0.0.1:8000"])?)?;
/// assert!(builder.observer(Arc::new(log)).build().is_ok());
/// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
/// ```
pub trait ProxyObserver: Send + Sync + 'static {
    /// Called for each event.
    fn observe(&self, event: ProxyEvent<'_>);
}

impl<F: Fn(ProxyEvent<'_>) + Send + Sync + 'static> ProxyObserver for F {
    fn observe(&self, event: ProxyEvent<'_>) {
        self(event);
    }
}

/// A request's last exchange, for its log line. A server puts this into the request's extensions, and keeps a clone.
///
/// ```
/// use ifmatch_proxy::LastExchange;
///
/// let (mut request, last) = (http::Request::new(()), LastExchange::default());
/// request.extensions_mut().insert(last.clone());
/// assert!(last.get().is_none(), "no server has got it yet");
/// ```
#[derive(Clone, Debug, Default)]
pub struct LastExchange(Arc<Mutex<Option<Exchange>>>);

/// An attempt at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchange {
    /// Host and port of the server, as configured.
    pub server: Authority,
    /// Status of the response, or the error.
    pub outcome: Result<StatusCode, ProxyErrorKind>,
    /// Time until the response began, including the time to connect.
    pub duration: Duration,
}

impl LastExchange {
    /// Returns the exchange. `None` if no server has got the request.
    pub fn get(&self) -> Option<Exchange> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, exchange: Exchange) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(exchange);
    }
}

/// The current state of an upstream: see [`Proxy::upstreams`](crate::Proxy::upstreams).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamState {
    /// Route of the upstream, as configured.
    pub route: String,
    /// Number of requests that wait for a server.
    pub waiting: usize,
    /// Its servers, as configured.
    pub servers: Vec<ServerState>,
}

/// The failures of a server that hasn't responded since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFailure {
    /// Time since the first failure.
    pub since: Duration,
    /// Time since the latest failure.
    pub last: Duration,
    /// What happened, such as "it refused the connection".
    pub cause: &'static str,
}

/// A server's current state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerState {
    /// Host and port.
    pub name: String,
    /// `false` while the server's health checks fail, or its circuit breaker is open.
    pub healthy: bool,
    /// `true` while the server's circuit breaker is open: shortly after it was unreachable, or hung.
    pub breaker_open: bool,
    /// The failures since the server's last response.
    pub failing: Option<ServerFailure>,
    /// Number of requests in progress, until the end of the response.
    pub requests: u64,
}
