//! Server selection for a request, and the request's slot at that server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::upstream::Upstream;
use crate::upstream::balance::Candidate;
use crate::upstream::server::Server;

/// One of a server's concurrent request slots. Released on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// A server with a slot for the request.
#[derive(Debug)]
pub(crate) struct ServerSlot<'a> {
    pub(crate) server: &'a Server,
    pub(crate) slot: Slot,
}

/// All servers have reached their request limit, and the queue is full.
#[derive(Debug)]
pub(crate) struct Full;

impl Upstream {
    /// Finds a slot at a server that was not tried, queueing if none is free. Returns `None` if all servers were tried.
    ///
    /// Servers that fail their health checks are skipped while others are available.
    ///
    /// # Errors
    /// [`Full`] if the queue is full, or if no slot became free in time.
    pub(crate) async fn acquire(&self, tried: &[&Server], patience: Duration) -> Result<Option<ServerSlot<'_>>, Full> {
        let order = self.order(tried);
        let Some(first) = order.first() else { return Ok(None) };
        let group = || order.iter().filter(|one| one.group() == first.group()).map(|one| &self.servers[one.index]);
        for server in group() {
            if let Ok(permit) = Arc::clone(&server.slots).try_acquire_owned() {
                return Ok(Some(ServerSlot::new(server, permit)));
            }
        }
        let _queued = self.queue.try_acquire().map_err(|_| Full)?;
        let slots = group().map(|server| {
            let slots = Arc::clone(&server.slots);
            Box::pin(async move { slots.acquire_owned().await.map(|permit| ServerSlot::new(server, permit)) })
        });
        match timeout(patience, first_of(slots.collect())).await {
            Ok(Ok(slot)) => Ok(Some(slot)),
            Ok(Err(_)) | Err(_) => Err(Full),
        }
    }

    /// Returns the servers that were not tried, in the order in which to try them.
    fn order(&self, tried: &[&Server]) -> Vec<Candidate> {
        let now = self.millis();
        let servers = self.servers.iter().enumerate().filter(|(_, server)| !is_among(server, tried));
        let candidates = servers.map(|(index, server)| server.candidate(index, now)).collect();
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).order(self.balance, candidates)
    }
}

impl<'a> ServerSlot<'a> {
    fn new(server: &'a Server, permit: OwnedSemaphorePermit) -> Self {
        Self { server, slot: Slot { _permit: permit } }
    }
}

fn is_among(server: &Server, others: &[&Server]) -> bool {
    others.iter().any(|other| std::ptr::eq(server, *other))
}

/// Returns the output of the future that completes first, and drops the others.
async fn first_of<F: Future>(mut futures: Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::Balance;

    const LONG: Duration = Duration::from_hours(1);

    fn upstream(names: &[&str], requests: u32, queue: u32) -> Upstream {
        let addresses: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
        Upstream::parse(&addresses).expect("addresses").limit(requests, queue)
    }

    fn order(upstream: &Upstream) -> Vec<&str> {
        untried(upstream, &[])
    }

    fn untried<'a>(upstream: &'a Upstream, tried: &[&Server]) -> Vec<&'a str> {
        let order = upstream.order(tried).into_iter();
        order.map(|candidate| upstream.servers[candidate.index].authority.as_str()).collect()
    }

    fn name<'a>(slot: &ServerSlot<'a>) -> &'a str {
        slot.server.authority.as_str()
    }

    #[tokio::test(start_paused = true)]
    async fn servers_take_turns_and_unreachable_ones_are_last() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
        upstream.record(&upstream.servers[2], false);
        for _ in 0..4 {
            assert_eq!(order(&upstream)[2], "c");
        }
        tokio::time::advance(Upstream::AVOIDANCE + Duration::from_millis(1)).await;
        assert!((0..3).any(|_| order(&upstream)[0] == "c"));
    }

    #[tokio::test]
    async fn an_unhealthy_server_is_always_last() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        let [a, b, c] = &upstream.servers[..] else { panic!("three servers") };
        a.set_unhealthy(true);
        upstream.record(b, false);
        upstream.record(a, true);
        for _ in 0..3 {
            assert_eq!(order(&upstream), ["c", "b", "a"]);
        }
        assert_eq!(untried(&upstream, &[c]), ["b", "a"]);
    }

    #[tokio::test]
    async fn backups_get_requests_only_while_no_other_server_is_available() {
        let upstream = upstream(&["a", "b", "c backup"], 1, 0);
        let [a, b, c] = &upstream.servers[..] else { panic!("three servers") };
        let acquire = || upstream.acquire(&[], LONG);
        let slots = [acquire().await, acquire().await].map(|slot| slot.expect("a slot").expect("a server"));
        assert!(slots.iter().all(|slot| name(slot) != "c"));
        // The others are busy, but healthy.
        assert!(acquire().await.is_err());
        a.set_unhealthy(true);
        assert!(acquire().await.is_err());
        upstream.record(b, false);
        assert_eq!(name(&acquire().await.expect("a slot").expect("a server")), "c");
        c.set_unhealthy(true);
        drop(slots);
        assert_eq!(name(&acquire().await.expect("a slot").expect("a server")), "b");
    }

    #[tokio::test]
    async fn the_server_with_the_fewest_requests_is_first() {
        let upstream = upstream(&["a", "b"], 9, 0).balance(Balance::LeastConnections);
        let acquire = || async { upstream.acquire(&[], LONG).await.expect("a slot").expect("a server") };
        let busy = acquire().await;
        for _ in 0..5 {
            assert_ne!(name(&acquire().await), name(&busy));
        }
        let (second, third, fourth) = (acquire().await, acquire().await, acquire().await);
        assert_ne!(name(&second), name(&busy));
        assert_ne!(name(&third), name(&fourth));
    }

    #[tokio::test]
    async fn a_full_server_is_skipped() {
        let upstream = upstream(&["a", "b"], 1, 0);
        let first = upstream.acquire(&[], LONG).await.expect("a slot").expect("a server");
        let second = upstream.acquire(&[], LONG).await.expect("a slot").expect("a server");
        assert_ne!(name(&first), name(&second));
        assert!(upstream.acquire(&[], LONG).await.is_err());
        assert!(upstream.acquire(&[first.server, second.server], LONG).await.expect("no slot needed").is_none());
        let free = name(&first);
        drop(first);
        assert_eq!(name(&upstream.acquire(&[], LONG).await.expect("a slot").expect("a server")), free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_any_healthy_server_until_a_timeout() {
        let upstream = upstream(&["a", "b", "unhealthy"], 1, 1);
        upstream.servers[2].set_unhealthy(true);
        let [a, b] = [0, 1].map(|_| upstream.acquire(&[], LONG));
        let (_a, b) = (a.await.expect("a slot").expect("a"), b.await.expect("a slot").expect("b"));
        let free = name(&b);
        let (queued, ()) = tokio::join!(upstream.acquire(&[], LONG), async {
            // The queue has one slot.
            assert!(upstream.acquire(&[], LONG).await.is_err());
            drop(b);
        });
        let queued = queued.expect("a slot").expect("a server");
        assert_eq!(name(&queued), free);
        assert!(upstream.acquire(&[], Duration::from_secs(1)).await.is_err());
        drop(queued);
        assert!(upstream.acquire(&[], LONG).await.is_ok());
    }
}
