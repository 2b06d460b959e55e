//! Server selection for a request, and the request's slot at that server.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::upstream::Upstream;
use crate::upstream::balance::ServerCandidate;
use crate::upstream::breaker::{BreakerRule, BreakerTicket, RequestOutcome, Requester};
use crate::upstream::server::UpstreamServer;
use crate::upstream::slots::{RequestSlot, SlotOrPlace};

/// Permission of a server's breaker to send it one request. Without a result, it is returned on drop.
#[derive(Debug)]
pub(crate) struct ServerAdmission<'a> {
    server: &'a UpstreamServer,
    rule: BreakerRule,
    ticket: Option<BreakerTicket>,
}

/// A server with a slot for the request.
#[derive(Debug)]
pub(crate) struct ServerSlot<'a> {
    pub(crate) server: &'a UpstreamServer,
    pub(crate) slot: RequestSlot,
    pub(crate) admission: ServerAdmission<'a>,
}

/// The reason why a request gets no server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoServerReason {
    /// No slot became free: the queue is full, this client has all the places it may have, or the request waited until its
    /// timeout.
    NoSlot,
    /// All servers hang. The first of them is probed after this time.
    Unavailable(Duration),
}

impl Upstream {
    /// Finds a slot at a server that wasn't tried, queueing if none is free. Returns `None` if all servers were tried.
    ///
    /// Servers that fail their health checks are skipped while others are available.
    ///
    /// # Errors
    /// [`NoServerReason`] if the queue is full, if no slot became free in time, or if all servers hang.
    pub(crate) async fn acquire(
        &self,
        tried: &[&UpstreamServer],
        requester: Requester,
        patience: Duration,
    ) -> Result<Option<ServerSlot<'_>>, NoServerReason> {
        let deadline = Instant::now() + patience;
        loop {
            let order = self.order(tried, requester)?;
            let Some(first) = order.first() else {
                return Ok(None);
            };
            let group = order.iter().filter(|one| one.group() == first.group());
            let group: Vec<usize> = group.map(|one| one.index).collect();
            let slot = match self.slots.take(&group, requester.client) {
                Some(SlotOrPlace::Slot(slot)) => slot,
                Some(SlotOrPlace::Place(mut place)) => {
                    match timeout_at(deadline, place.slot()).await {
                        Ok(Some(slot)) => slot,
                        Ok(None) | Err(_) => return Err(NoServerReason::NoSlot),
                    }
                }
                None => return Err(NoServerReason::NoSlot),
            };
            let server = &self.servers[slot.server()];
            // Its breaker may have opened meanwhile.
            if let Some(admission) = self.admit(server, requester) {
                return Ok(Some(ServerSlot {
                    server,
                    slot,
                    admission,
                }));
            }
        }
    }

    /// Permits a request to this server, unless its breaker is open.
    pub(crate) fn admit<'a>(
        &self,
        server: &'a UpstreamServer,
        requester: Requester,
    ) -> Option<ServerAdmission<'a>> {
        let ticket = server.with_breaker(|breaker| breaker.admit(requester, Instant::now()))?;
        Some(ServerAdmission {
            server,
            rule: self.breaker,
            ticket: Some(ticket),
        })
    }

    /// Returns the servers that weren't tried, in the order in which to try them.
    fn order(
        &self,
        tried: &[&UpstreamServer],
        requester: Requester,
    ) -> Result<Vec<ServerCandidate>, NoServerReason> {
        let now = Instant::now();
        let servers = self
            .servers
            .iter()
            .enumerate()
            .filter(|(_, server)| !is_among(server, tried));
        let (mut candidates, mut rejecting) = (Vec::new(), None);
        for (index, server) in servers {
            match server.candidate(
                index,
                requester,
                self.slots.load(index, requester.client),
                now,
            ) {
                Ok(candidate) => candidates.push(candidate),
                Err(until) => {
                    rejecting = Some(rejecting.map_or(until, |other: Instant| other.min(until)));
                }
            }
        }
        match rejecting {
            Some(until) if candidates.is_empty() => Err(NoServerReason::Unavailable(
                until.saturating_duration_since(now),
            )),
            _ => Ok(self
                .turns
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .order(self.balance, candidates)),
        }
    }
}

impl ServerAdmission<'_> {
    /// Records the result of the request.
    pub(crate) fn record(mut self, outcome: RequestOutcome) {
        if let Some(ticket) = self.ticket.take() {
            self.server
                .with_breaker(|breaker| breaker.record(ticket, outcome, self.rule, Instant::now()));
        }
    }
}

impl Drop for ServerAdmission<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.server.with_breaker(|breaker| breaker.abandon(ticket));
        }
    }
}

fn is_among(server: &UpstreamServer, others: &[&UpstreamServer]) -> bool {
    others.iter().any(|other| std::ptr::eq(server, *other))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::upstream::balance::Balance;

    const LONG: Duration = Duration::from_hours(1);

    fn upstream(names: &[&str], requests: u32, queue: u32) -> Upstream {
        let addresses: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
        Upstream::parse(&addresses)
            .expect("addresses")
            .limit(requests, queue)
    }

    fn order(upstream: &Upstream) -> Vec<&str> {
        untried(upstream, &[])
    }

    fn untried<'a>(upstream: &'a Upstream, tried: &[&UpstreamServer]) -> Vec<&'a str> {
        let order = upstream
            .order(tried, any_requester())
            .expect("available servers")
            .into_iter();
        order
            .map(|candidate| upstream.servers[candidate.index].authority.as_str())
            .collect()
    }

    /// Returns a requester unlike all earlier ones.
    fn new_requester() -> Requester {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Requester {
            client: None,
            path: NEXT.fetch_add(1, Relaxed),
        }
    }

    fn any_requester() -> Requester {
        Requester {
            client: None,
            path: 0,
        }
    }

    /// Sends a request to this server, with this result.
    fn record(upstream: &Upstream, server: &UpstreamServer, outcome: RequestOutcome) {
        upstream
            .admit(server, any_requester())
            .expect("a closed breaker")
            .record(outcome);
    }

    /// Acquires a slot, which is free.
    async fn acquire(upstream: &Upstream) -> ServerSlot<'_> {
        upstream
            .acquire(&[], any_requester(), LONG)
            .await
            .expect("a slot")
            .expect("a server")
    }

    /// Returns `true` if there is no slot.
    async fn is_full(upstream: &Upstream) -> bool {
        upstream.acquire(&[], any_requester(), LONG).await.is_err()
    }

    fn name<'a>(slot: &ServerSlot<'a>) -> &'a str {
        slot.server.authority.as_str()
    }

    #[tokio::test(start_paused = true)]
    async fn servers_take_turns_and_unreachable_ones_are_last() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
        record(&upstream, &upstream.servers[2], RequestOutcome::Unreachable);
        for _ in 0..4 {
            assert_eq!(order(&upstream)[2], "c");
        }
        tokio::time::advance(BreakerRule::default().pause).await;
        assert!((0..3).any(|_| order(&upstream)[0] == "c"));
    }

    #[tokio::test]
    async fn an_unhealthy_server_is_always_last() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        let [a, b, c] = &upstream.servers[..] else {
            panic!("three servers")
        };
        a.set_unhealthy(true);
        record(&upstream, b, RequestOutcome::Unreachable);
        record(&upstream, a, RequestOutcome::Answered);
        for _ in 0..3 {
            assert_eq!(order(&upstream), ["c", "b", "a"]);
        }
        assert_eq!(untried(&upstream, &[c]), ["b", "a"]);
    }

    #[tokio::test]
    async fn backups_get_requests_only_while_no_other_server_is_available() {
        let upstream = upstream(&["a", "b", "c backup"], 1, 0);
        let [a, b, c] = &upstream.servers[..] else {
            panic!("three servers")
        };
        let slots = [acquire(&upstream).await, acquire(&upstream).await];
        assert!(slots.iter().all(|slot| name(slot) != "c"));
        // The others are busy, but healthy.
        assert!(is_full(&upstream).await);
        a.set_unhealthy(true);
        assert!(is_full(&upstream).await);
        record(&upstream, b, RequestOutcome::Unreachable);
        assert_eq!(name(&acquire(&upstream).await), "c");
        c.set_unhealthy(true);
        drop(slots);
        assert_eq!(name(&acquire(&upstream).await), "b");
    }

    #[tokio::test]
    async fn the_server_with_the_fewest_requests_is_first() {
        let upstream = upstream(&["a", "b"], 9, 0).balance(Balance::LeastConnections);
        let busy = acquire(&upstream).await;
        for _ in 0..5 {
            assert_ne!(name(&acquire(&upstream).await), name(&busy));
        }
        let [second, third, fourth] = [
            acquire(&upstream).await,
            acquire(&upstream).await,
            acquire(&upstream).await,
        ];
        assert_ne!(name(&second), name(&busy));
        assert_ne!(name(&third), name(&fourth));
    }

    #[tokio::test]
    async fn a_full_server_is_skipped() {
        let upstream = upstream(&["a", "b"], 1, 0);
        let (first, second) = (acquire(&upstream).await, acquire(&upstream).await);
        assert_ne!(name(&first), name(&second));
        assert!(is_full(&upstream).await);
        let tried = [first.server, second.server];
        assert!(
            upstream
                .acquire(&tried, any_requester(), LONG)
                .await
                .expect("no slot needed")
                .is_none()
        );
        let free = name(&first);
        drop(first);
        assert_eq!(name(&acquire(&upstream).await), free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_any_healthy_server_until_a_timeout() {
        let upstream = upstream(&["a", "b", "unhealthy"], 1, 1);
        upstream.servers[2].set_unhealthy(true);
        let (_a, b) = (acquire(&upstream).await, acquire(&upstream).await);
        let free = name(&b);
        let (queued, ()) = tokio::join!(acquire(&upstream), async {
            // The queue has one slot.
            assert!(is_full(&upstream).await);
            drop(b);
        });
        assert_eq!(name(&queued), free);
        assert!(
            upstream
                .acquire(&[], any_requester(), Duration::from_secs(1))
                .await
                .is_err()
        );
        drop(queued);
        acquire(&upstream).await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_leave_servers_that_hang_for_others_then_for_backups_then_fail() {
        let upstream = upstream(&["a", "b", "c backup"], 9, 9).breaker(2, LONG);
        for server in &upstream.servers[..] {
            assert_eq!(name(&acquire(&upstream).await), server.authority.as_str());
            while let Some(admission) = upstream.admit(server, new_requester()) {
                admission.record(RequestOutcome::Hung);
            }
        }
        let rejected = upstream.acquire(&[], any_requester(), LONG).await.err();
        assert_eq!(
            rejected,
            Some(NoServerReason::Unavailable(LONG)),
            "all servers hang"
        );
        tokio::time::advance(LONG).await;
        let mut probes = [acquire(&upstream).await, acquire(&upstream).await];
        probes.sort_by_key(name);
        assert_eq!(probes.each_ref().map(name), ["a", "b"]);
        let [a, b] = probes;
        a.admission.record(RequestOutcome::Hung);
        drop(b);
        let again = acquire(&upstream).await;
        assert_eq!(name(&again), "b", "the probe was abandoned");
        again.admission.record(RequestOutcome::Answered);
        for _ in 0..3 {
            assert_eq!(name(&acquire(&upstream).await), "b");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queued_request_does_not_go_to_a_server_that_hangs_by_then() {
        let upstream = upstream(&["a"], 1, 1).breaker(2, LONG);
        upstream
            .admit(&upstream.servers[0], new_requester())
            .expect("a closed breaker")
            .record(RequestOutcome::Hung);
        let first = acquire(&upstream).await;
        let (queued, ()) = tokio::join!(upstream.acquire(&[], any_requester(), LONG), async move {
            let ServerSlot {
                slot, admission, ..
            } = first;
            tokio::task::yield_now().await;
            admission.record(RequestOutcome::Hung);
            drop(slot);
        });
        assert!(
            matches!(queued, Err(NoServerReason::Unavailable(_))),
            "{queued:?}"
        );
    }
}
