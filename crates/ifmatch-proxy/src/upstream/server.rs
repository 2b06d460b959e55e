//! One server of an upstream.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use tokio::time::Instant;

use super::InvalidUpstream;
use super::balance::{ServerCandidate, ServerHealth};
use super::breaker::{CircuitBreaker, FailingServer, Requester, ServerAvailability};
use super::pool::ConnectionPool;
use crate::observer::{ServerFailure, ServerState};

/// One server.
#[derive(Debug)]
pub(crate) struct UpstreamServer {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// `true` if the server speaks HTTP/2 without TLS: `h2c://`.
    pub(super) speaks_http2: bool,
    /// Prefix of all paths, without a trailing slash.
    base: String,
    /// Share of the requests, relative to the other servers.
    pub(super) weight: u32,
    /// `true` if the server is used only while no other one is available.
    pub(super) backup: bool,
    breaker: Mutex<CircuitBreaker>,
    /// When health checks began to fail, while they do.
    unhealthy: Mutex<Option<Instant>>,
    pub(super) pool: ConnectionPool,
}

impl UpstreamServer {
    /// Parses a URL and its options, separated by spaces: `http://10.0.0.7:8080 weight=3 backup`.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidUpstream> {
        let mut words = text.split_ascii_whitespace();
        let mut server = Self::at(words.next().unwrap_or_default())?;
        for word in words {
            let weight = word
                .strip_prefix("weight=")
                .and_then(|digits| digits.parse().ok());
            match (word, weight) {
                ("backup", _) => server.backup = true,
                (_, Some(weight @ 1..)) => server.weight = weight,
                _ => return Err(InvalidUpstream::option(word)),
            }
        }
        Ok(server)
    }

    /// Parses a URL.
    fn at(url: &str) -> Result<Self, InvalidUpstream> {
        let invalid = || InvalidUpstream::url(url);
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let parts = uri.into_parts();
        let (scheme, speaks_http2) = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("http") => (Scheme::HTTP, false),
            Some("https") => (Scheme::HTTPS, false),
            Some("h2c") => (Scheme::HTTP, true),
            _ => return Err(invalid()),
        };
        let is_host = |authority: &Authority| {
            // Other characters are valid in a URL, but in no host name. `$` begins another server's variable.
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:%~".contains(&byte);
            !authority.as_str().contains('@') && authority.host().bytes().all(is_valid)
        };
        let authority = parts.authority.filter(is_host).ok_or_else(invalid)?;
        let path = parts
            .path_and_query
            .unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(invalid());
        }
        Ok(Self {
            scheme,
            authority,
            speaks_http2,
            base: path.path().trim_end_matches('/').to_owned(),
            weight: 1,
            backup: false,
            breaker: Mutex::default(),
            unhealthy: Mutex::default(),
            pool: ConnectionPool::default(),
        })
    }

    /// Returns the server's current state, for the decision about the next request of this requester: the number of requests at
    /// the server, and `true` if it has no slot for this one, are its `load`. Fails while the breaker rejects requests, with the
    /// time at which that may end.
    pub(super) fn candidate(
        &self,
        index: usize,
        requester: Requester,
        load: (u32, bool),
        now: Instant,
    ) -> Result<ServerCandidate, Instant> {
        let health = match self.breaker().availability(requester, now) {
            ServerAvailability::Rejecting(until) => return Err(until),
            _ if self.is_unhealthy() => ServerHealth::Unhealthy,
            ServerAvailability::LastResort => ServerHealth::Avoided,
            ServerAvailability::Available => ServerHealth::Healthy,
        };
        let (requests, full) = load;
        Ok(ServerCandidate {
            index,
            weight: self.weight,
            requests: requests.into(),
            health,
            backup: self.backup,
            full,
        })
    }

    /// Returns the server's current state, with this number of requests, for metrics.
    pub(super) fn state(&self, requests: u32, now: Instant) -> ServerState {
        let breaker = self.breaker();
        let (breaker_open, failing) = (breaker.holds_back(now), breaker.failing());
        drop(breaker);
        let unhealthy = *self.unhealthy();
        let failing = match (unhealthy, failing) {
            (Some(since), None) => Some(ServerFailure {
                since: now - since,
                last: now - since,
                cause: "its health checks fail",
            }),
            (
                unhealthy,
                Some(FailingServer {
                    since,
                    last,
                    outcome,
                }),
            ) => {
                let since = unhealthy.map_or(since, |unhealthy| unhealthy.min(since));
                Some(ServerFailure {
                    since: now - since,
                    last: now - last,
                    cause: outcome.cause(),
                })
            }
            (None, None) => None,
        };
        ServerState {
            name: self.authority.as_str().to_owned(),
            healthy: !breaker_open && unhealthy.is_none(),
            breaker_open,
            failing,
            requests: requests.into(),
        }
    }

    /// Applies a change to the circuit breaker.
    pub(super) fn with_breaker<T>(&self, change: impl FnOnce(&mut CircuitBreaker) -> T) -> T {
        let mut breaker = self.breaker();
        let before = breaker.is_open();
        let result = change(&mut breaker);
        let (open, failing) = (breaker.is_open(), breaker.failing());
        drop(breaker);
        match (before, open, failing) {
            (false, true, Some(FailingServer { outcome, .. })) => {
                tracing::warn!(
                    "upstream server {} fails: {}. Other servers get its requests",
                    self.authority,
                    outcome.cause()
                );
            }
            (true, false, _) => tracing::info!("upstream server {} responds again", self.authority),
            _ => {}
        }
        result
    }

    /// Continues with the known state of the same server.
    pub(crate) fn inherit_breaker(&self, known: &Self) {
        let known = known.breaker().inherited();
        *self.breaker() = known;
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if both have the same URL.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.scheme, &self.authority, &self.base)
            == (&other.scheme, &other.authority, &other.base)
    }

    /// Returns `true` if the server's health checks fail.
    pub(crate) fn is_unhealthy(&self) -> bool {
        self.unhealthy().is_some()
    }

    fn unhealthy(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unhealthy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of the health checks.
    pub(crate) fn set_unhealthy(&self, unhealthy: bool) {
        let mut since = self.unhealthy();
        if since.is_some() == unhealthy {
            return;
        }
        *since = unhealthy.then(Instant::now);
        drop(since);
        if unhealthy {
            tracing::warn!(
                "upstream server {} fails its health checks, and gets no more requests",
                self.authority
            );
        } else {
            tracing::info!(
                "upstream server {} passes its health checks again",
                self.authority
            );
        }
    }

    /// Returns `true` if the server's URL has a path.
    pub(crate) fn has_base(&self) -> bool {
        !self.base.is_empty()
    }

    /// Returns the path in the server's URL, without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns `true` if the server uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns a path, with its query, at this server. Returns `None` if the result isn't valid in a URL.
    pub(crate) fn path(&self, path: &str) -> Option<PathAndQuery> {
        match self.base.as_str() {
            "" => path.parse(),
            base => format!("{base}{path}").parse(),
        }
        .ok()
    }

    /// Returns the URL to connect to. Its path has no meaning.
    pub(super) fn origin(&self) -> Option<Uri> {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone());
        uri.path_and_query("/").build().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_prepended() {
        let server = UpstreamServer::parse("https://example.com:8443/base/").expect("an address");
        assert_eq!(server.path("/a%2Fb?c").expect("a path"), "/base/a%2Fb?c");
        assert_eq!(server.origin().expect("a URL"), "https://example.com:8443/");
    }

    #[test]
    fn invalid_upstreams_are_rejected() {
        for text in [
            "",
            "example.com",
            "/path",
            "ftp://a",
            "http://user:secret@a",
            "http://a/?q",
            "http://",
            "http://$backend",
            "http://*",
        ] {
            assert!(UpstreamServer::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn options_follow_the_url() {
        for (text, weight, backup) in [
            ("http://a", 1, false),
            (" http://a  weight=3", 3, false),
            ("http://a backup", 1, true),
            ("http://a backup weight=65536", 65_536, true),
        ] {
            let server = UpstreamServer::parse(text).expect("a server");
            assert_eq!((server.weight, server.backup), (weight, backup), "{text}");
        }
        for option in [
            "weight=0",
            "weight=-1",
            "weight=",
            "weight",
            "Backup",
            "weight=4294967296",
            "http://b",
        ] {
            let error = UpstreamServer::parse(&format!("http://a {option}"))
                .expect_err(option)
                .to_string();
            assert!(
                error.contains(option) && error.contains("weight=3"),
                "{error}"
            );
        }
    }
}
