//! Server selection for a request, and the request's slot at that server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::upstream::{Server, Upstream};

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
        let candidates = || order.iter().copied().filter(|server| server.is_unhealthy() == first.is_unhealthy());
        for server in candidates() {
            if let Ok(permit) = Arc::clone(&server.slots).try_acquire_owned() {
                return Ok(Some(ServerSlot::new(server, permit)));
            }
        }
        let _queued = self.queue.try_acquire().map_err(|_| Full)?;
        let slots = candidates().map(|server| {
            let slots = Arc::clone(&server.slots);
            Box::pin(async move { slots.acquire_owned().await.map(|permit| ServerSlot::new(server, permit)) })
        });
        match timeout(patience, first_of(slots.collect())).await {
            Ok(Ok(slot)) => Ok(Some(slot)),
            Ok(Err(_)) | Err(_) => Err(Full),
        }
    }

    /// Returns the servers in the order in which to try them: round robin, with recently unreachable servers late and
    /// unhealthy ones last.
    fn order(&self, tried: &[&Server]) -> Vec<&Server> {
        let count = self.servers.len();
        let first = if tried.is_empty() && count > 1 { self.next_turn() } else { 0 };
        let in_turn = (0..count).map(|offset| &self.servers[first.wrapping_add(offset) % count]);
        let mut order: Vec<&Server> = in_turn.filter(|server| !is_among(server, tried)).collect();
        let now = self.millis();
        order.sort_by_key(|server| (server.is_unhealthy(), server.is_avoided(now)));
        order
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

    const LONG: Duration = Duration::from_hours(1);

    fn upstream(names: &[&str], requests: u32, queue: u32) -> Upstream {
        let addresses: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
        Upstream::parse(&addresses).expect("addresses").limit(requests, queue)
    }

    fn order(upstream: &Upstream) -> Vec<&str> {
        upstream.order(&[]).into_iter().map(|server| server.authority.as_str()).collect()
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
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        tokio::time::advance(Upstream::AVOIDANCE + Duration::from_millis(1)).await;
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
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
        let rest: Vec<&str> = upstream.order(&[c]).into_iter().map(|server| server.authority.as_str()).collect();
        assert_eq!(rest, ["b", "a"]);
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
