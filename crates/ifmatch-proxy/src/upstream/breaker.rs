//! The circuit breaker of a server: a pure decision.
//!
//! ```text
//!            unreachable, or as many failures in a row as the threshold
//!   closed ────────────────────────────────────────────────────────────▶ open
//!     ▲                                                                   │ pause
//!     │ response                                                          ▼
//!     └──────────────────────────────────────────────────────────── half-open: one request, the probe
//! ```
//!
//! While it is open, other servers get the requests. If there is no other server, the cause decides. An unreachable
//! server fails fast, and may be back at any moment, so it gets requests as a last resort. A server that hangs costs
//! each request the whole timeout, so requests are rejected.

use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerRule {
    /// Number of consecutive failures that open the breaker. 0 if only unreachable servers are skipped.
    pub(crate) failures: u32,
    /// Time until the probe.
    pub(crate) pause: Duration,
}

impl Default for BreakerRule {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(5) }
    }
}

/// The result of a request, as far as it tells about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A response began.
    Answered,
    /// The connection was rejected, or the name is unknown.
    Unreachable,
    /// No connection was made in time.
    ConnectTimeout,
    /// The server accepted the request, but sent no valid response in time.
    Failed,
}

/// The requests that a server may get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// All, or the probe.
    Available,
    /// Those that no other server can take.
    LastResort,
    /// None until this time, or until the probe ends if that is later.
    Rejecting(Instant),
}

/// Permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    start: Instant,
    probe: bool,
}

/// The circuit breaker of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    /// Number of failures in a row.
    failures: u32,
    /// Time of the last response. Failures of requests that began earlier are older evidence.
    answered: Option<Instant>,
    open: Option<Opened>,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    until: Instant,
    /// `true` if the server hangs, so that requests are rejected.
    rejects: bool,
    probing: bool,
}

impl Breaker {
    /// Returns the requests that the server may get now.
    pub(crate) fn availability(&self, now: Instant) -> Availability {
        match self.open {
            None => Availability::Available,
            Some(open) if open.until <= now && !open.probing => Availability::Available,
            Some(Opened { rejects: false, .. }) => Availability::LastResort,
            Some(Opened { until, .. }) => Availability::Rejecting(until),
        }
    }

    /// Returns `true` if the breaker is open or half-open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the state for another value that stands for the same server. A probe in progress is not reported to it.
    pub(crate) fn inherited(&self) -> Self {
        let open = self.open.map(|open| Opened { probing: false, ..open });
        Self { open, ..*self }
    }

    /// Permits a request, if the server may get one. [`record`](Self::record) or [`abandon`](Self::abandon) must follow.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        let probe = match (self.availability(now), &mut self.open) {
            (Availability::Rejecting(_), _) => return None,
            (Availability::Available, Some(open)) => {
                open.probing = true;
                true
            }
            (Availability::Available | Availability::LastResort, _) => false,
        };
        Some(Ticket { start: now, probe })
    }

    /// Records the result of a request.
    pub(crate) fn record(&mut self, ticket: Ticket, outcome: Outcome, rule: BreakerRule, now: Instant) {
        self.abandon(ticket);
        if outcome == Outcome::Answered {
            *self = Self { failures: 0, answered: Some(now), open: None };
            return;
        }
        if self.answered.is_some_and(|answered| ticket.start < answered) {
            return;
        }
        if outcome == Outcome::Unreachable {
            // A server that rejects connections no longer hangs.
            self.failures = 0;
            self.open(now + rule.pause, false);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let hangs = rule.failures > 0 && self.failures >= rule.failures;
        // Requests that began before the breaker opened do not prolong the pause.
        let known = self.open.is_some_and(|open| open.rejects);
        if ticket.probe || !known && (hangs || outcome == Outcome::ConnectTimeout) {
            self.open(now + rule.pause, hangs);
        }
    }

    /// Records that a request ended without a result, because the client has left.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        if let (true, Some(open)) = (ticket.probe, &mut self.open) {
            open.probing = false;
        }
    }

    fn open(&mut self, until: Instant, rejects: bool) {
        let probing = self.open.is_some_and(|open| open.probing);
        self.open = Some(Opened { until, rejects, probing });
    }
}

#[cfg(test)]
mod tests {
    use super::Availability::{Available, LastResort, Rejecting};
    use super::Outcome::{Answered, ConnectTimeout, Failed, Unreachable};
    use super::*;

    const RULE: BreakerRule = BreakerRule { failures: 3, pause: Duration::from_secs(5) };
    const SECOND: Duration = Duration::from_secs(1);

    /// A breaker and a clock.
    struct Server {
        breaker: Breaker,
        now: Instant,
    }

    impl Server {
        fn new() -> Self {
            Self { breaker: Breaker::default(), now: Instant::now() }
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
        }

        fn admit(&mut self) -> Ticket {
            self.breaker.admit(self.now).expect("a server that may get requests")
        }

        fn record(&mut self, ticket: Ticket, outcome: Outcome) {
            self.breaker.record(ticket, outcome, RULE, self.now);
        }

        /// Sends a request with this result.
        fn send(&mut self, outcome: Outcome) {
            let ticket = self.admit();
            self.record(ticket, outcome);
        }

        fn availability(&self) -> Availability {
            self.breaker.availability(self.now)
        }

        /// Lets the server hang until the breaker opens.
        fn hang(&mut self) {
            for _ in 0..RULE.failures {
                self.send(Failed);
            }
            assert_eq!(self.availability(), Rejecting(self.now + RULE.pause));
        }
    }

    #[test]
    fn failures_in_a_row_open_the_breaker() {
        let mut server = Server::new();
        for outcome in [Failed, Failed, Answered, Failed, Failed] {
            server.pass(SECOND);
            server.send(outcome);
            assert_eq!(server.availability(), Available);
        }
        server.send(Failed);
        assert_eq!(server.availability(), Rejecting(server.now + RULE.pause));
        assert_eq!(server.breaker.admit(server.now), None);
    }

    #[test]
    fn one_probe_at_a_time_decides_after_the_pause() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        for outcome in [Failed, ConnectTimeout] {
            let probe = server.admit();
            assert_eq!(server.breaker.admit(server.now), None);
            server.pass(RULE.pause * 2);
            assert_eq!(server.breaker.admit(server.now), None, "the probe is in progress");
            server.record(probe, outcome);
            assert_eq!(server.availability(), Rejecting(server.now + RULE.pause));
            server.pass(RULE.pause);
        }
        server.send(Answered);
        assert_eq!(server.availability(), Available);
        server.send(Failed);
        assert_eq!(server.availability(), Available, "the failures are counted from the start");
    }

    #[test]
    fn another_probe_follows_one_without_a_result() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        let probe = server.admit();
        server.breaker.abandon(probe);
        let probe = server.admit();
        assert_eq!(server.breaker.admit(server.now), None);
        server.record(probe, Answered);
        assert_eq!(server.availability(), Available);
    }

    #[test]
    fn an_unreachable_server_is_a_last_resort() {
        let mut server = Server::new();
        for _ in 0..9 {
            server.send(Unreachable);
            assert_eq!(server.availability(), LastResort);
        }
        server.pass(RULE.pause);
        let probe = server.admit();
        assert_eq!(server.availability(), LastResort, "the probe is in progress");
        server.record(probe, Failed);
        assert_eq!(server.availability(), LastResort);
        server.send(Answered);
        assert_eq!(server.availability(), Available);
    }

    #[test]
    fn a_server_that_hung_and_rejects_connections_is_a_last_resort() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        server.send(Unreachable);
        assert_eq!(server.availability(), LastResort);
    }

    #[test]
    fn connections_that_time_out_are_avoided_at_once_and_count_as_failures() {
        let mut server = Server::new();
        for _ in 1..RULE.failures {
            server.send(ConnectTimeout);
            assert_eq!(server.availability(), LastResort);
        }
        server.send(ConnectTimeout);
        assert_eq!(server.availability(), Rejecting(server.now + RULE.pause));
    }

    #[test]
    fn failures_of_requests_older_than_the_last_response_do_not_count() {
        let mut server = Server::new();
        let old: Vec<_> = (0..9).map(|_| server.admit()).collect();
        server.pass(SECOND);
        server.send(Answered);
        for ticket in old {
            server.record(ticket, Failed);
        }
        assert_eq!(server.availability(), Available);
    }

    #[test]
    fn requests_from_before_do_not_prolong_the_pause_but_a_response_ends_it() {
        let mut server = Server::new();
        let [late, lucky] = [server.admit(), server.admit()];
        server.hang();
        let until = server.now + RULE.pause;
        server.pass(SECOND);
        server.record(late, ConnectTimeout);
        assert_eq!(server.availability(), Rejecting(until));
        server.record(lucky, Answered);
        assert_eq!(server.availability(), Available);
    }

    #[test]
    fn without_a_threshold_no_request_is_rejected() {
        let rule = BreakerRule { failures: 0, ..RULE };
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for outcome in [Failed, ConnectTimeout, Failed, Failed, Failed] {
            let ticket = breaker.admit(now).expect("no rejection");
            breaker.record(ticket, outcome, rule, now);
        }
        assert_eq!(breaker.availability(now), LastResort);
    }
}
