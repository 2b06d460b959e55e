//! The servers behind the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) mod connect;
pub(crate) mod health;
pub(crate) mod selection;

/// One or more equivalent servers.
///
/// Requests are distributed round robin. An unreachable server is skipped for a while, and an unhealthy one until its
/// health checks succeed. If all servers are skipped, each is tried.
///
/// ```
/// use ifmatch_proxy::Upstream;
///
/// assert!(Upstream::parse(&["https://example.com/base"]).is_ok());
/// assert!(Upstream::parse(&["ftp://example.com"]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Upstream {
    pub(crate) servers: Arc<[Server]>,
    /// Slots for requests that wait for a server.
    pub(crate) queue: Arc<Semaphore>,
    turn: Arc<AtomicUsize>,
    start: Instant,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Prefix of all paths, without a trailing slash.
    base: String,
    /// Slots for concurrent requests.
    pub(crate) slots: Arc<Semaphore>,
    /// Time until which the server is skipped as unreachable, in milliseconds since the start.
    avoided_until: AtomicU64,
    /// `true` while health checks fail.
    unhealthy: AtomicBool,
}

/// Error returned for an invalid upstream address or route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUpstream(String);

impl InvalidUpstream {
    fn url(text: &str) -> Self {
        Self(format!("'{text}' is not a valid upstream URL; for example http://localhost:8000"))
    }

    pub(crate) fn route(text: &str) -> Self {
        Self(format!(
            "'{text}' is not a valid route; for example example.com/images. Its path must not have empty segments, dot \
             segments, parameters or escaped separators"
        ))
    }
}

impl Upstream {
    /// Time for which an unreachable server is skipped while others are available.
    pub(crate) const AVOIDANCE: Duration = Duration::from_secs(5);

    /// Parses server URLs: `http://` or `https://`, a host, and optionally a port and a path, which is prepended to the
    /// request's.
    ///
    /// # Errors
    /// Fails if a URL is invalid, or if there is none.
    pub fn parse<T: AsRef<str>>(addresses: &[T]) -> Result<Self, InvalidUpstream> {
        let servers: Arc<[Server]> =
            addresses.iter().map(|address| Server::parse(address.as_ref())).collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(InvalidUpstream::url(""));
        }
        let queue = Arc::new(Semaphore::new(0));
        Ok(Self { servers, queue, turn: Arc::default(), start: Instant::now() })
    }

    /// Limits the number of concurrent requests to each server, and the number of requests that wait for a slot at any
    /// of them. Further requests fail with [`Overloaded`](crate::ProxyErrorKind::Overloaded). Unlimited by default.
    #[must_use]
    pub fn limit(self, requests: u32, queue: u32) -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(permits as usize));
        let servers = self.servers.iter().map(|server| server.with_slots(semaphore(requests))).collect();
        Self { servers, queue: semaphore(queue), ..self }
    }

    /// Returns the index of the next server in turn, which may exceed the number of servers.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed)
    }

    /// Records if a server could be reached.
    pub(crate) fn record(&self, server: &Server, reached: bool) {
        let until = if reached { 0 } else { self.millis().saturating_add(millis(Self::AVOIDANCE)) };
        let before = server.avoided_until.swap(until, Relaxed);
        if (before == 0) != reached {
            tracing::info!(server = %server.authority, reached, "the reachability of an upstream server changed");
        }
    }

    /// Returns the milliseconds since the start.
    pub(crate) fn millis(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream::url(text);
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let parts = uri.into_parts();
        let scheme =
            parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme)).ok_or_else(invalid)?;
        let authority = parts.authority.filter(|authority| !authority.as_str().contains('@')).ok_or_else(invalid)?;
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(invalid());
        }
        let base = path.path().trim_end_matches('/').to_owned();
        let slots = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Ok(Self { scheme, authority, base, slots, avoided_until: AtomicU64::new(0), unhealthy: AtomicBool::new(false) })
    }

    /// Copies the server with this set of slots.
    fn with_slots(&self, slots: Arc<Semaphore>) -> Self {
        let Self { scheme, authority, base, .. } = self;
        let (scheme, authority, base) = (scheme.clone(), authority.clone(), base.clone());
        Self { scheme, authority, base, slots, avoided_until: AtomicU64::new(0), unhealthy: AtomicBool::new(false) }
    }

    /// Returns `true` if the server is currently skipped as unreachable.
    pub(crate) fn is_avoided(&self, now: u64) -> bool {
        self.avoided_until.load(Relaxed) > now
    }

    /// Returns `true` if the server's health checks fail.
    pub(crate) fn is_unhealthy(&self) -> bool {
        self.unhealthy.load(Relaxed)
    }

    /// Records the result of the health checks.
    pub(crate) fn set_unhealthy(&self, unhealthy: bool) {
        if self.unhealthy.swap(unhealthy, Relaxed) != unhealthy {
            tracing::warn!(server = %self.authority, healthy = !unhealthy, "the health of an upstream server changed");
        }
    }

    /// Returns `true` if the server's URL has a path.
    pub(crate) fn has_base(&self) -> bool {
        !self.base.is_empty()
    }

    /// Returns the URL of a path at this server. Returns `None` if the result is not a valid URL.
    pub(crate) fn url(&self, path: &str) -> Option<Uri> {
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        match self.base.as_str() {
            "" => uri.path_and_query(path),
            base => uri.path_and_query(format!("{base}{path}")),
        }
        .build()
        .ok()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_prepended() {
        let server = Server::parse("https://example.com:8443/base/").expect("an address");
        let address = server.url("/a%2Fb?c").expect("an address").to_string();
        assert_eq!(address, "https://example.com:8443/base/a%2Fb?c");
    }

    #[test]
    fn invalid_upstreams_are_rejected() {
        for text in ["", "example.com", "/path", "ftp://a", "http://user:secret@a", "http://a/?q", "http://"] {
            assert!(Server::parse(text).is_err(), "{text}");
        }
    }
}
