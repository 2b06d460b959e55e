//! The servers behind the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// One or more servers that answer alike.
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
    /// What the path begins with, without a slash at the end.
    base: String,
    /// Slots for concurrent requests.
    pub(crate) places: Arc<Semaphore>,
    /// Time until which the server is skipped as unreachable, in milliseconds since the start.
    resting: AtomicU64,
    /// `true` while health checks fail.
    sick: AtomicBool,
}

/// Error returned for an invalid upstream address or route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUpstream(String);

impl InvalidUpstream {
    fn address(text: &str) -> Self {
        Self(format!(
            "'{text}' is no upstream: write http:// or https://, a host, and perhaps a port and a path without parameters"
        ))
    }

    pub(crate) fn route(text: &str) -> Self {
        Self(format!(
            "'{text}' is no route: write a host, a path without empty segments, dot segments, parameters and escaped \
             separators, or both, such as example.com/images"
        ))
    }
}

impl Upstream {
    /// Time for which an unreachable server is skipped while others are available.
    pub(crate) const REST: Duration = Duration::from_secs(5);

    /// The servers at these addresses: `http://` or `https://`, a host, perhaps a port, and a path to put before the
    /// request's.
    ///
    /// # Errors
    /// One of them is no such address, or there is none.
    pub fn parse<T: AsRef<str>>(addresses: &[T]) -> Result<Self, InvalidUpstream> {
        let servers: Arc<[Server]> =
            addresses.iter().map(|address| Server::parse(address.as_ref())).collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(InvalidUpstream::address(""));
        }
        let queue = Arc::new(Semaphore::new(0));
        Ok(Self { servers, queue, turn: Arc::default(), start: Instant::now() })
    }

    /// Limits the number of concurrent requests to each server, and the number of requests that wait for a slot at any
    /// of them. Further requests fail with [`Overloaded`](crate::ProxyErrorKind::Overloaded). Unlimited by default.
    #[must_use]
    pub fn limit(self, requests: u32, queue: u32) -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(permits as usize));
        let servers = self.servers.iter().map(|server| server.with_places(semaphore(requests))).collect();
        Self { servers, queue: semaphore(queue), ..self }
    }

    /// Returns the index of the next server in turn, which may exceed the number of servers.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed)
    }

    /// Notes whether a server could be reached.
    pub(crate) fn note(&self, server: &Server, reached: bool) {
        let until = if reached { 0 } else { self.millis().saturating_add(millis(Self::REST)) };
        let before = server.resting.swap(until, Relaxed);
        if (before == 0) != reached {
            tracing::info!(server = %server.authority, reached, "an upstream changed");
        }
    }

    /// Returns the milliseconds since the start.
    pub(crate) fn millis(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream::address(text);
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
        let places = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Ok(Self { scheme, authority, base, places, resting: AtomicU64::new(0), sick: AtomicBool::new(false) })
    }

    /// Copies the server with this set of slots.
    fn with_places(&self, places: Arc<Semaphore>) -> Self {
        let Self { scheme, authority, base, .. } = self;
        let (scheme, authority, base) = (scheme.clone(), authority.clone(), base.clone());
        Self { scheme, authority, base, places, resting: AtomicU64::new(0), sick: AtomicBool::new(false) }
    }

    /// Returns `true` if the server is currently skipped as unreachable.
    pub(crate) fn rests(&self, now: u64) -> bool {
        self.resting.load(Relaxed) > now
    }

    /// Returns `true` if the server's health checks fail.
    pub(crate) fn is_sick(&self) -> bool {
        self.sick.load(Relaxed)
    }

    /// Records the result of the health checks.
    pub(crate) fn set_sick(&self, sick: bool) {
        if self.sick.swap(sick, Relaxed) != sick {
            tracing::warn!(server = %self.authority, healthy = !sick, "the health of an upstream changed");
        }
    }

    /// Whether it has a path of its own.
    pub(crate) fn has_base(&self) -> bool {
        !self.base.is_empty()
    }

    /// The address of a request's path at this server. None where the two make no address.
    pub(crate) fn address(&self, path: &str) -> Option<Uri> {
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
    fn a_base_path_comes_before_the_request_s() {
        let server = Server::parse("https://example.com:8443/base/").expect("an address");
        let address = server.address("/a%2Fb?c").expect("an address").to_string();
        assert_eq!(address, "https://example.com:8443/base/a%2Fb?c");
    }

    #[test]
    fn other_texts_are_no_upstreams() {
        for text in ["", "example.com", "/path", "ftp://a", "http://user:secret@a", "http://a/?q", "http://"] {
            assert!(Server::parse(text).is_err(), "{text}");
        }
    }
}
