//! The servers behind the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use tokio::time::Instant;

/// How long a server that could not be reached is left alone while others can be asked.
const REST: Duration = Duration::from_secs(5);

/// One or more servers that answer alike.
///
/// Requests go to them in turn. One that cannot be reached is left alone for a while, as is one whose health check
/// fails; when all are, each is tried.
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
    /// Until when it is left alone, in milliseconds since the start.
    resting: AtomicU64,
}

/// The text is no address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no upstream: write http:// or https://, a host, and perhaps a port and a path without parameters")]
pub struct InvalidUpstream(pub(crate) String);

impl Upstream {
    /// The servers at these addresses: `http://` or `https://`, a host, perhaps a port, and a path to put before the
    /// request's.
    ///
    /// # Errors
    /// One of them is no such address, or there is none.
    pub fn parse<T: AsRef<str>>(addresses: &[T]) -> Result<Self, InvalidUpstream> {
        let servers: Arc<[Server]> =
            addresses.iter().map(|address| Server::parse(address.as_ref())).collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(InvalidUpstream(String::new()));
        }
        Ok(Self { servers, turn: Arc::default(), start: Instant::now() })
    }

    /// The servers in the order in which to try them.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = &Server> {
        let now = self.millis();
        let first = self.turn.fetch_add(1, Relaxed);
        let count = self.servers.len();
        let order = move |rests: bool| {
            let servers = (0..count).map(move |offset| &self.servers[first.wrapping_add(offset) % count]);
            servers.filter(move |server| (server.resting.load(Relaxed) > now) == rests)
        };
        order(false).chain(order(true))
    }

    /// Notes whether a server could be reached.
    pub(crate) fn note(&self, server: &Server, reached: bool) {
        let until = if reached { 0 } else { self.millis().saturating_add(millis(REST)) };
        let before = server.resting.swap(until, Relaxed);
        if (before == 0) != reached {
            tracing::info!(server = %server.authority, reached, "an upstream changed");
        }
    }

    fn millis(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream(text.to_owned());
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
        Ok(Self { scheme, authority, base, resting: AtomicU64::new(0) })
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

    fn order(upstream: &Upstream) -> Vec<&str> {
        upstream.in_turn().map(|server| server.authority.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn servers_take_turns_and_resting_ones_come_last() {
        let upstream = Upstream::parse(&["http://a", "http://b", "http://c"]).expect("three servers");
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
        upstream.note(&upstream.servers[2], false);
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        tokio::time::advance(REST + Duration::from_millis(1)).await;
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
    }

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
