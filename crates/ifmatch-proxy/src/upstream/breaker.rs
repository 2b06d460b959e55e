//! The circuit breaker of a server: a pure decision.
//!
//! ```text
//!            unreachable, or as many failures in a row as the threshold, seen by several requesters
//!   closed ────────────────────────────────────────────────────────────────────────────────────────▶ open
//!     ▲                                                                                               │ pause
//!     │ response                                                                                      ▼
//!     └──────────────────────────────────────────────────────── half-open: one request of each client, the probes
//! ```
//!
//! While it is open, other servers get the requests. If there is no other server, the cause decides. A server that is
//! unreachable, closes connections or returns errors does so at once, and may recover at any moment, so it gets
//! requests as a last resort. A server that hangs costs each request the whole timeout, so requests are rejected.
//!
//! # One client against all
//!
//! - **A healthy server closes the connection for some requests.** One client that repeats such a request opens no breaker: the
//!   failures must be seen by several clients, or for several paths. Even then, the server is only avoided, so a lone server
//!   still gets all requests.
//! - **A healthy server is slow for some requests.** One client that repeats one of them opens no breaker, either. One that requests two
//!   slow paths does, and a lone server then gets only probes: behind another proxy, everybody may have the address of one client.
//!   The next response ends that.
//! - **The request that is the probe hangs because of what it asks for.** Each client has a probe of its own, so another
//!   client's request finds out that the server responds. Its response also makes the first probe outdated.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of concurrent probes, which are of different clients.
const MAX_PROBES: usize = 8;

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
        Self {
            failures: 5,
            pause: Duration::from_secs(5),
        }
    }
}

/// The client of a request, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// `None` if clients aren't told apart.
    pub(crate) client: Option<IpAddr>,
    /// Hash of the path.
    pub(crate) path: u64,
}

/// The result of a request, as far as it tells about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// A response began that isn't [`Faulty`](Self::Faulty).
    Answered,
    /// The server closed the connection, sent invalid HTTP, or answered 502, 503 or 504.
    Faulty,
    /// The connection was rejected, or the name is unknown.
    Unreachable,
    /// No connection was made in time.
    ConnectTimeout,
    /// The server accepted the request, but sent no response in time.
    Hung,
}

impl RequestOutcome {
    /// Says what happened at the server, for the log and the operator.
    pub(super) fn cause(self) -> &'static str {
        match self {
            Self::Answered => "it responded",
            Self::Faulty => "it closed the connection, or sent an error (502, 503, 504)",
            Self::Unreachable => "it refused the connection, or its name is unknown",
            Self::ConnectTimeout => "it didn't accept the connection in time",
            Self::Hung => "it sent no response in time",
        }
    }
}

/// The requests that a server may get now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerAvailability {
    /// All, or the probe of this client.
    Available,
    /// Those that no other server can take.
    LastResort,
    /// None until this time, or until the probes end if that is later.
    Rejecting(Instant),
}

/// Permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerTicket {
    start: Instant,
    probe: bool,
    requester: Requester,
}

/// The circuit breaker of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitBreaker {
    failures: FailureRun,
    /// Time of the last response. Failures of requests that began earlier are older evidence.
    answered: Option<Instant>,
    /// What failed since then.
    failing: Option<FailingServer>,
    open: Option<OpenBreaker>,
}

/// A server that hasn't responded since it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailingServer {
    /// Time of the first failure.
    pub(crate) since: Instant,
    /// Time of the latest failure.
    pub(crate) last: Instant,
    /// What the latest failure was.
    pub(crate) outcome: RequestOutcome,
}

/// The failures in a row.
#[derive(Clone, Debug, Default)]
struct FailureRun {
    count: u32,
    /// Number of time limits in a row.
    hung: u32,
    first: Option<Requester>,
    /// `true` if more than one requester has seen some.
    by_several: bool,
}

/// A breaker that is open, or half-open.
#[derive(Clone, Debug)]
struct OpenBreaker {
    /// End of the pause.
    until: Instant,
    /// `true` if the server hangs, so requests are rejected.
    rejects: bool,
    /// The clients of the probes.
    probing: Vec<Option<IpAddr>>,
}

impl CircuitBreaker {
    /// Returns the requests that the server may get from this requester now.
    pub(crate) fn availability(&self, requester: Requester, now: Instant) -> ServerAvailability {
        match &self.open {
            None => ServerAvailability::Available,
            Some(open) if open.until <= now && open.may_probe(requester.client) => {
                ServerAvailability::Available
            }
            Some(OpenBreaker { rejects: false, .. }) => ServerAvailability::LastResort,
            Some(OpenBreaker { until, .. }) => ServerAvailability::Rejecting(*until),
        }
    }

    /// Returns the failures since the last response.
    pub(crate) fn failing(&self) -> Option<FailingServer> {
        self.failing
    }

    /// Returns `true` if the breaker is open or half-open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns `true` if the breaker is open, or half-open with a probe in progress.
    pub(crate) fn holds_back(&self, now: Instant) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| now < open.until || !open.probing.is_empty())
    }

    /// Returns the state for another value that stands for the same server. Probes in progress aren't reported to it.
    pub(crate) fn inherited(&self) -> Self {
        let open = self.open.as_ref().map(|open| OpenBreaker {
            probing: Vec::new(),
            ..*open
        });
        Self {
            open,
            failures: self.failures.clone(),
            ..*self
        }
    }

    /// Permits a request, if the server may get one. [`record`](Self::record) or [`abandon`](Self::abandon) must follow.
    pub(crate) fn admit(&mut self, requester: Requester, now: Instant) -> Option<BreakerTicket> {
        let probe = match (self.availability(requester, now), &mut self.open) {
            (ServerAvailability::Rejecting(_), _) => return None,
            (ServerAvailability::Available, Some(open)) => {
                open.probing.push(requester.client);
                true
            }
            (ServerAvailability::Available | ServerAvailability::LastResort, _) => false,
        };
        Some(BreakerTicket {
            start: now,
            probe,
            requester,
        })
    }

    /// Records the result of a request.
    pub(crate) fn record(
        &mut self,
        ticket: BreakerTicket,
        outcome: RequestOutcome,
        rule: BreakerRule,
        now: Instant,
    ) {
        self.abandon(ticket);
        if outcome == RequestOutcome::Answered {
            *self = Self {
                answered: Some(now),
                ..Self::default()
            };
            return;
        }
        if self
            .answered
            .is_some_and(|answered| ticket.start < answered)
        {
            return;
        }
        let since = self.failing.map_or(now, |failing| failing.since);
        self.failing = Some(FailingServer {
            since,
            last: now,
            outcome,
        });
        if outcome == RequestOutcome::Unreachable {
            // A server that rejects connections no longer hangs.
            self.failures = FailureRun::default();
            self.open(now + rule.pause, false);
            return;
        }
        self.failures.add(ticket.requester, outcome);
        let hangs = self.failures.hung >= rule.failures;
        let fails =
            rule.failures > 0 && self.failures.count >= rule.failures && self.failures.by_several;
        // Requests that began before the server was found to hang don't prolong the pause. Those of a last resort do, whenever they
        // began.
        let known = self.open.as_ref().is_some_and(|open| open.rejects);
        if ticket.probe || !known && (fails || outcome == RequestOutcome::ConnectTimeout) {
            self.open(now + rule.pause, fails && hangs);
        }
    }

    /// Records that a health check, which began at this time, has passed. It doesn't close the breaker, which requests decide.
    pub(crate) fn passed_check(&mut self, began: Instant) {
        // A failure during the check is newer evidence.
        self.failing = self.failing.filter(|failing| failing.last >= began);
    }

    /// Records that a request ended without a result, because the client has left.
    pub(crate) fn abandon(&mut self, ticket: BreakerTicket) {
        if let (true, Some(open)) = (ticket.probe, &mut self.open) {
            open.probing
                .retain(|client| *client != ticket.requester.client);
        }
    }

    fn open(&mut self, until: Instant, rejects: bool) {
        let probing = self
            .open
            .take()
            .map(|open| open.probing)
            .unwrap_or_default();
        self.open = Some(OpenBreaker {
            until,
            rejects,
            probing,
        });
    }
}

impl OpenBreaker {
    fn may_probe(&self, client: Option<IpAddr>) -> bool {
        self.probing.len() < MAX_PROBES && !self.probing.contains(&client)
    }
}

impl FailureRun {
    fn add(&mut self, requester: Requester, outcome: RequestOutcome) {
        self.count = self.count.saturating_add(1);
        self.hung = if outcome == RequestOutcome::Faulty {
            0
        } else {
            self.hung.saturating_add(1)
        };
        // A client can't cause a connection to fail.
        self.by_several |= outcome == RequestOutcome::ConnectTimeout
            || self.first.is_some_and(|first| first != requester);
        self.first.get_or_insert(requester);
    }
}

#[cfg(test)]
mod tests {
    use super::RequestOutcome::{Answered, ConnectTimeout, Faulty, Hung, Unreachable};
    use super::ServerAvailability::{Available, LastResort, Rejecting};
    use super::*;

    const RULE: BreakerRule = BreakerRule {
        failures: 3,
        pause: Duration::from_secs(5),
    };
    const SECOND: Duration = Duration::from_secs(1);

    fn client(last: u8) -> Requester {
        Requester {
            client: Some([192, 0, 2, last].into()),
            path: 0,
        }
    }

    /// A breaker and a clock.
    struct Server {
        breaker: CircuitBreaker,
        now: Instant,
        clients: u8,
    }

    impl Server {
        fn new() -> Self {
            Self {
                breaker: CircuitBreaker::default(),
                now: Instant::now(),
                clients: 0,
            }
        }

        /// Returns the next of many clients.
        fn new_requester(&mut self) -> Requester {
            self.clients += 1;
            client(self.clients)
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
        }

        fn admit(&mut self) -> BreakerTicket {
            let requester = self.new_requester();
            self.admit_from(requester)
        }

        fn admit_from(&mut self, requester: Requester) -> BreakerTicket {
            self.breaker
                .admit(requester, self.now)
                .expect("a server that may get requests")
        }

        fn record(&mut self, ticket: BreakerTicket, outcome: RequestOutcome) {
            self.breaker.record(ticket, outcome, RULE, self.now);
        }

        /// Sends a request with this result.
        fn send(&mut self, outcome: RequestOutcome) {
            let ticket = self.admit();
            self.record(ticket, outcome);
        }

        fn availability(&self) -> ServerAvailability {
            self.breaker.availability(client(0), self.now)
        }

        /// Lets the server hang until the breaker opens.
        fn hang(&mut self) {
            for _ in 0..RULE.failures {
                self.send(Hung);
            }
            assert_eq!(self.availability(), Rejecting(self.now + RULE.pause));
        }
    }

    #[test]
    fn failures_in_a_row_open_the_breaker() {
        let mut server = Server::new();
        for outcome in [Hung, Hung, Answered, Hung, Hung] {
            server.pass(SECOND);
            server.send(outcome);
            assert_eq!(server.availability(), Available);
        }
        server.send(Hung);
        assert_eq!(server.availability(), Rejecting(server.now + RULE.pause));
        assert_eq!(server.breaker.admit(client(0), server.now), None);
    }

    #[test]
    fn a_server_fails_until_it_responds_even_after_the_pause() {
        let mut server = Server::new();
        assert_eq!(server.breaker.failing(), None);
        server.send(Unreachable);
        let since = server.now;
        server.pass(RULE.pause * 9);
        assert!(!server.breaker.holds_back(server.now), "the pause is over");
        assert_eq!(
            server.breaker.failing(),
            Some(FailingServer {
                since,
                last: since,
                outcome: Unreachable
            })
        );
        server.send(Hung);
        assert_eq!(
            server.breaker.failing(),
            Some(FailingServer {
                since,
                last: server.now,
                outcome: Hung
            })
        );
        assert_eq!(
            server.breaker.inherited().failing(),
            server.breaker.failing()
        );
        server.send(Answered);
        assert_eq!(server.breaker.failing(), None);
        // A health check that passes says as much, unless a request fails meanwhile.
        server.send(Faulty);
        let began = server.now;
        server.breaker.passed_check(began);
        assert_ne!(server.breaker.failing(), None);
        server.pass(SECOND);
        server.breaker.passed_check(server.now);
        assert_eq!(server.breaker.failing(), None);
    }

    #[test]
    fn each_client_has_a_probe_after_the_pause() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        let slow = server.admit_from(client(1));
        assert_eq!(
            server.breaker.admit(client(1), server.now),
            None,
            "the client's probe is in progress"
        );
        server.pass(SECOND);
        let other = server.admit_from(client(2));
        server.record(other, Answered);
        assert_eq!(server.availability(), Available);
        server.pass(SECOND);
        server.record(slow, Hung);
        assert_eq!(
            server.availability(),
            Available,
            "the probe is older than the response"
        );
        server.send(Hung);
        assert_eq!(
            server.availability(),
            Available,
            "the failures are counted from the start"
        );
    }

    #[test]
    fn a_server_that_hangs_gets_few_probes() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        let probes: Vec<_> = (0..MAX_PROBES).map(|_| server.admit()).collect();
        assert_eq!(server.breaker.admit(client(0), server.now), None);
        for probe in probes {
            server.record(probe, Hung);
            assert_eq!(server.availability(), Rejecting(server.now + RULE.pause));
        }
    }

    #[test]
    fn failures_that_one_client_sees_for_one_path_do_not_count() {
        for outcome in [Faulty, Hung] {
            let mut server = Server::new();
            for _ in 0..99 {
                let ticket = server.admit_from(client(1));
                server.record(ticket, outcome);
            }
            assert_eq!(server.availability(), Available, "{outcome:?}");
            let ticket = server.admit_from(Requester {
                path: 1,
                ..client(1)
            });
            server.record(ticket, outcome);
            assert_ne!(server.availability(), Available, "{outcome:?}");
        }
    }

    #[test]
    fn a_server_that_fails_at_once_is_a_last_resort() {
        let mut server = Server::new();
        for outcome in [Hung, Hung, Faulty, Hung, Hung, Faulty, Faulty] {
            server.send(outcome);
            assert!(
                matches!(server.availability(), Available | LastResort),
                "{outcome:?}"
            );
        }
        assert_eq!(server.availability(), LastResort);
        server.pass(RULE.pause);
        server.send(Faulty);
        assert_eq!(server.availability(), LastResort);
        server.send(Answered);
        assert_eq!(server.availability(), Available);
    }

    #[test]
    fn a_server_that_hung_and_now_fails_at_once_is_a_last_resort() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        server.send(Faulty);
        assert_eq!(server.availability(), LastResort);
    }

    #[test]
    fn another_probe_follows_one_without_a_result() {
        let mut server = Server::new();
        server.hang();
        server.pass(RULE.pause);
        let probe = server.admit_from(client(0));
        server.breaker.abandon(probe);
        let probe = server.admit_from(client(0));
        assert_eq!(server.breaker.admit(client(0), server.now), None);
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
        let probe = server.admit_from(client(0));
        assert_eq!(
            server.availability(),
            LastResort,
            "the probe is in progress"
        );
        server.record(probe, Hung);
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
            server.record(ticket, Hung);
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
    fn requests_from_before_prolong_the_pause_of_a_last_resort() {
        let mut server = Server::new();
        let late = server.admit();
        server.send(Unreachable);
        let until = server.now + RULE.pause;
        server.pass(SECOND);
        server.record(late, ConnectTimeout);
        assert!(server.breaker.holds_back(until));
        assert_eq!(server.availability(), LastResort);
    }

    #[test]
    fn without_a_threshold_no_request_is_rejected() {
        let rule = BreakerRule {
            failures: 0,
            ..RULE
        };
        let (mut breaker, now) = (CircuitBreaker::default(), Instant::now());
        for (at, outcome) in (0..).zip([Hung, ConnectTimeout, Hung, Hung, Faulty]) {
            let ticket = breaker.admit(client(at), now).expect("no rejection");
            breaker.record(ticket, outcome, rule, now);
        }
        assert_eq!(breaker.availability(client(9), now), LastResort);
    }
}
