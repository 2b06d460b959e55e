//! Active health checks.

use std::time::Duration;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::forward::outgoing;
use crate::forward::request_body::RequestBody;
use crate::upstream::Upstream;
use crate::upstream::client::HttpClient;
use crate::upstream::server::UpstreamServer;

/// Active health checks: each server is asked for a path, and fails if its response isn't 2xx or comes too late.
///
/// The first check of a server decides alone. After that, only several consecutive results change the verdict, so
/// one lost response doesn't move all requests to the other servers. Servers are checked concurrently.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_proxy::HealthCheck;
///
/// let check = HealthCheck { interval: Duration::from_secs(2), ..HealthCheck::of("/health") };
/// assert_eq!((check.failures, check.successes), (3, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path to request.
    pub path: String,
    /// Time between two checks of a server.
    pub interval: Duration,
    /// Maximum time until the response begins.
    pub timeout: Duration,
    /// Number of consecutive failures after which a server gets no more requests.
    pub failures: u32,
    /// Number of consecutive successes after which a server gets requests again.
    pub successes: u32,
}

impl HealthCheck {
    /// Checks this path every 10 seconds, with a timeout of 5 seconds; 3 failures and 2 successes change the verdict.
    pub fn of(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            failures: 3,
            successes: 2,
        }
    }
}

/// Checks the servers of these upstreams until the task is dropped.
pub(crate) async fn watch<'a>(
    client: &HttpClient,
    upstreams: impl Iterator<Item = (&'a Upstream, &'a HealthCheck)>,
) {
    let mut tasks = JoinSet::new();
    for (upstream, check) in upstreams {
        for at in 0..upstream.servers.len() {
            tasks.spawn(watch_server(
                client.clone(),
                upstream.clone(),
                at,
                check.clone(),
            ));
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn watch_server(client: HttpClient, upstream: Upstream, at: usize, check: HealthCheck) {
    let server = &upstream.servers[at];
    let mut verdict = HealthVerdict::default();
    let mut ticks = interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let passed = passes(&client, server, &check).await;
        if passed {
            server.with_breaker(|breaker| breaker.passed_check(began));
        }
        server.set_unhealthy(verdict.record(passed, &check));
    }
}

async fn passes(client: &HttpClient, server: &UpstreamServer, check: &HealthCheck) -> bool {
    let Some(path) = server.path(&check.path) else {
        return false;
    };
    let Ok(host) = HeaderValue::from_str(server.authority.as_str()) else {
        return false;
    };
    let body = RequestBody::empty();
    let request = |version| {
        let headers = HeaderMap::from_iter([(HOST, host.clone())]);
        outgoing::request(
            version,
            Method::GET,
            (server, &path),
            headers,
            body.lend(false),
        )
    };
    let response = timeout(check.timeout, client.send(server, false, &body, request)).await;
    matches!(response, Ok(Ok(response)) if response.status().is_success())
}

/// Current health verdict of a server.
#[derive(Debug, Default)]
struct HealthVerdict {
    unhealthy: bool,
    /// `true` once a check has completed.
    known: bool,
    /// Number of consecutive checks that contradict the verdict.
    against: u32,
}

impl HealthVerdict {
    /// Records a check, and returns `true` if the server is unhealthy.
    fn record(&mut self, passed: bool, check: &HealthCheck) -> bool {
        let agrees = passed != self.unhealthy;
        self.against = if agrees {
            0
        } else {
            self.against.saturating_add(1)
        };
        let enough = match (self.known, passed) {
            (false, _) => 1,
            (true, true) => check.successes,
            (true, false) => check.failures,
        };
        if !agrees && self.against >= enough {
            self.unhealthy = !passed;
            self.against = 0;
        }
        self.known = true;
        self.unhealthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_check_decides_alone_and_later_ones_in_a_row() {
        let check = HealthCheck::of("/");
        for (checks, expected) in [
            ("+", "+"),
            ("-", "-"),
            ("--++-++", "---++++"),
            ("+--+---+-++", "++++++----+"),
            ("+---+-+-++---", "+++------+++-"),
        ] {
            let mut verdict = HealthVerdict::default();
            let said: String = checks
                .chars()
                .map(|sign| {
                    if verdict.record(sign == '+', &check) {
                        '-'
                    } else {
                        '+'
                    }
                })
                .collect();
            assert_eq!(said, expected, "{checks}");
        }
    }
}
