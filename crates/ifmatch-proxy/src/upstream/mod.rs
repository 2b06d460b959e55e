//! The servers behind the proxy.
//!
//! 1. `selection` puts the servers in order: by the state of each `server`, which its `breaker` and its `health` checks set, and by
//!    `balance`. Then it takes one of the `slots`, or waits for one.
//! 2. `client` sends the request over a connection from the server's `pool`. Otherwise, `resolver` looks up the address, and
//!    `connect` opens a connection.
//! 3. `selection` tells the breaker how it went.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ifmatch_core::share::SlotLimit;
use tokio::time::Instant;

pub(crate) mod balance;
pub(crate) mod breaker;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod health;
pub(crate) mod selection;
pub(crate) mod server;
pub(crate) mod slots;

mod pool;
mod resolver;

use crate::observer::UpstreamState;
use balance::{Balance, ServerTurns};
use breaker::BreakerRule;
use server::UpstreamServer;
use slots::UpstreamSlots;

/// One or more equivalent servers.
///
/// Requests are [distributed](Balance) over the servers. A server that is unreachable or hangs is skipped for a while
/// (see [`breaker`](Self::breaker)), and an unhealthy one until its health checks succeed. Backups get requests only if
/// all other servers are skipped. If all servers are skipped, each is tried, except those that hang.
///
/// ```
/// use ifmatch_proxy::Upstream;
///
/// assert!(Upstream::parse(&["https://example.com/base"]).is_ok());
/// assert!(Upstream::parse(&["http://10.0.0.7 weight=3", "http://10.0.0.8", "http://10.0.0.9 backup"]).is_ok());
/// assert!(Upstream::parse(&["ftp://example.com"]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Upstream {
    pub(crate) servers: Arc<[UpstreamServer]>,
    /// Slots for requests, and for those that wait for one.
    pub(crate) slots: Arc<UpstreamSlots>,
    limits: SlotLimits,
    balance: Balance,
    turns: Arc<Mutex<ServerTurns>>,
    breaker: BreakerRule,
}

/// The numbers of slots of an upstream.
#[derive(Clone, Debug)]
struct SlotLimits {
    /// Of each server.
    requests: Vec<u32>,
    /// For waiting requests.
    queue: u32,
    /// Of one client, at each server and in the queue.
    per_client: Option<u32>,
}

/// Error returned for an invalid upstream address or route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUpstream(String);

impl InvalidUpstream {
    fn url(text: &str) -> Self {
        if text.contains('@') {
            return Self(
                "an upstream URL can't have a user or password. Remove it, and set `authorization` in the `request-headers` of a route"
                    .to_owned(),
            );
        }
        Self(format!(
            "'{text}' is not a valid upstream URL. Use one such as http://localhost:8000"
        ))
    }

    fn option(word: &str) -> Self {
        Self(format!(
            "'{word}' is not an option of an upstream. Use weight=N or backup, as in http://localhost:8000 weight=3"
        ))
    }

    fn only_backups() -> Self {
        Self(
            "all servers of an upstream are backups. Remove the option from at least one"
                .to_owned(),
        )
    }

    pub(crate) fn field(name: &str) -> Self {
        Self(format!(
            "'{name}' is not a header name. Use one such as X-Site"
        ))
    }

    pub(crate) fn fixed_field(name: &str) -> Self {
        Self(format!(
            "a route cannot change '{name}': it delimits, selects or identifies the content, belongs to one connection, or is \
             set by the proxy. Remove this rule"
        ))
    }

    pub(crate) fn value(name: &str) -> Self {
        Self(format!(
            "the value of '{name}' can't be in a header. Write visible ASCII in one line"
        ))
    }

    pub(crate) fn redirect(target: &str) -> Self {
        Self(format!(
            "'{target}' is not a valid redirect target. Write a URL or a path, with {{path}} at the end for the request's path and \
             query, and no slash before it: https://www.example.com{{path}}. Variables such as $request_uri are unknown; a dollar \
             sign is %24"
        ))
    }

    pub(crate) fn status() -> Self {
        Self("a redirect's status must be 301, 302, 307 or 308".to_owned())
    }

    pub(crate) fn no_prefix(text: &str) -> Self {
        Self(format!(
            "'{text}' has no path to strip. Add one, such as '{text}/images', or remove strip-prefix"
        ))
    }

    pub(crate) fn route(text: &str) -> Self {
        Self(format!(
            "'{text}' is not a valid route. Use one such as example.com/images, or *.example.com for all its subdomains, without \
             empty segments, dot segments, parameters or escaped separators in the path"
        ))
    }

    pub(crate) fn pattern(text: &str) -> Self {
        Self(format!(
            "'{text}' has a pattern in its path, and routes have none. A path matches everything below it, so use '/api' for all of /api"
        ))
    }

    pub(crate) fn twice(text: &str, other: &str) -> Self {
        Self(format!(
            "'{text}' has the same host and path as the route '{other}'. Remove one"
        ))
    }
}

impl Upstream {
    /// Parses server URLs: `http://` or `https://`, a host, and optionally a port and a path, which is prepended to the
    /// request's. `h2c://` is HTTP/2 without TLS. Options may follow, separated by spaces: `weight=N`, the server's share of the
    /// requests relative to the others, and `backup`.
    ///
    /// # Errors
    /// Fails if a URL or an option is invalid, or if there is no server that isn't a backup.
    pub fn parse<T: AsRef<str>>(addresses: &[T]) -> Result<Self, InvalidUpstream> {
        let servers: Arc<[UpstreamServer]> = addresses
            .iter()
            .map(|address| UpstreamServer::parse(address.as_ref()))
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(InvalidUpstream::url(""));
        }
        if servers.iter().all(|server| server.backup) {
            return Err(InvalidUpstream::only_backups());
        }
        let limits = SlotLimits {
            requests: vec![u32::MAX; servers.len()],
            queue: 0,
            per_client: None,
        };
        Ok(Self {
            turns: Arc::new(Mutex::new(ServerTurns::new(servers.len()))),
            servers,
            slots: limits.slots(),
            limits,
            balance: Balance::default(),
            breaker: BreakerRule::default(),
        })
    }

    /// Sets how to distribute requests over the servers. Round robin by default.
    #[must_use]
    pub fn balance(self, balance: Balance) -> Self {
        Self { balance, ..self }
    }

    /// Sets when a server is skipped: for the `pause`, after this number of consecutive failures that several clients, or
    /// requests for several paths, have seen. Then one request of each client is sent to it, until it responds. 5 failures and
    /// 5 seconds by default; 0 failures disable it.
    ///
    /// If no other server is available, the kind of the failures decides. After time limits, requests fail with
    /// [`Unavailable`](crate::ProxyErrorKind::Unavailable). A server that closes connections, sends invalid HTTP, or
    /// returns 502, 503 or 504 still gets requests that no other server can take. An unreachable server does, too, but
    /// is skipped for the pause at once.
    #[must_use]
    pub fn breaker(self, failures: u32, pause: Duration) -> Self {
        Self {
            breaker: BreakerRule { failures, pause },
            ..self
        }
    }

    /// Limits the number of concurrent requests to each server, and the number of requests that wait for a slot at any
    /// of them. Further requests fail with [`Overloaded`](crate::ProxyErrorKind::Overloaded). Unlimited by default.
    ///
    /// A [`ForwardedClient`](crate::ForwardedClient) gets another slot while more are free than it holds, so one client takes at most
    /// half of them.
    #[must_use]
    pub fn limit(self, requests: u32, queue: u32) -> Self {
        let requests = vec![requests; self.servers.len()];
        let per_client = self.limits.per_client;
        self.with_limits(SlotLimits {
            requests,
            queue,
            per_client,
        })
    }

    /// Limits the slots that one client gets at each server and in the queue, instead of leaving some to others. Useful
    /// if all requests come from one address, such as a load balancer's.
    #[must_use]
    pub fn per_client(self, per_client: Option<u32>) -> Self {
        let limits = SlotLimits {
            per_client,
            ..self.limits.clone()
        };
        self.with_limits(limits)
    }

    /// Limits the number of concurrent requests to all servers together, and the number of waiting requests. Each
    /// server gets a part in proportion to its weight, at least 1. The backups together get as many requests as the
    /// others.
    ///
    /// ```
    /// use ifmatch_proxy::Upstream;
    ///
    /// // 375 and 125.
    /// let upstream = Upstream::parse(&["http://10.0.0.7 weight=3", "http://10.0.0.8"])?.share(500, 250);
    /// # drop(upstream);
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    #[must_use]
    pub fn share(self, requests: u32, queue: u32) -> Self {
        let among = |backup| {
            self.servers
                .iter()
                .filter(move |other| other.backup == backup)
                .map(|other| other.weight)
        };
        let share =
            |server: &UpstreamServer| balance::share(requests, server.weight, among(server.backup));
        let requests = self.servers.iter().map(share).collect();
        let per_client = self.limits.per_client;
        self.with_limits(SlotLimits {
            requests,
            queue,
            per_client,
        })
    }

    fn with_limits(self, limits: SlotLimits) -> Self {
        Self {
            slots: limits.slots(),
            limits,
            ..self
        }
    }

    /// Returns `true` if any of the servers uses TLS.
    pub fn is_secure(&self) -> bool {
        self.servers.iter().any(UpstreamServer::is_secure)
    }

    /// Returns the current state, for metrics.
    pub(crate) fn state(&self, route: &str) -> UpstreamState {
        let now = Instant::now();
        let state =
            |(at, server): (usize, &UpstreamServer)| server.state(self.slots.load(at, None).0, now);
        UpstreamState {
            route: route.to_owned(),
            waiting: self.slots.waiting() as usize,
            servers: self.servers.iter().enumerate().map(state).collect(),
        }
    }
}

impl SlotLimits {
    fn slots(&self) -> Arc<UpstreamSlots> {
        let limit = |total| SlotLimit {
            total,
            per_client: self.per_client,
        };
        UpstreamSlots::new(self.requests.iter().copied().map(limit), limit(self.queue))
    }
}
