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
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// A server with a slot for the request.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) server: &'a Server,
    pub(crate) place: Place,
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
    pub(crate) async fn seat(&self, tried: &[&Server], patience: Duration) -> Result<Option<Seat<'_>>, Full> {
        let order = self.order(tried);
        let Some(first) = order.first() else { return Ok(None) };
        let candidates = || order.iter().copied().filter(|server| server.is_sick() == first.is_sick());
        for server in candidates() {
            if let Ok(permit) = Arc::clone(&server.places).try_acquire_owned() {
                return Ok(Some(Seat::new(server, permit)));
            }
        }
        let _queued = self.queue.try_acquire().map_err(|_| Full)?;
        let places = candidates().map(|server| {
            let places = Arc::clone(&server.places);
            Box::pin(async move { places.acquire_owned().await.map(|permit| Seat::new(server, permit)) })
        });
        match timeout(patience, first_of(places.collect())).await {
            Ok(Ok(seat)) => Ok(Some(seat)),
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
        order.sort_by_key(|server| (server.is_sick(), server.rests(now)));
        order
    }
}

impl<'a> Seat<'a> {
    fn new(server: &'a Server, permit: OwnedSemaphorePermit) -> Self {
        Self { server, place: Place { _permit: permit } }
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

    fn name<'a>(seat: &Seat<'a>) -> &'a str {
        seat.server.authority.as_str()
    }

    #[tokio::test(start_paused = true)]
    async fn servers_take_turns_and_resting_ones_come_last() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
        upstream.note(&upstream.servers[2], false);
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        tokio::time::advance(Upstream::REST + Duration::from_millis(1)).await;
        assert_eq!(order(&upstream), ["a", "b", "c"]);
        assert_eq!(order(&upstream), ["b", "c", "a"]);
    }

    #[tokio::test]
    async fn a_sick_server_comes_after_all_others_whatever_else_happens_to_it() {
        let upstream = upstream(&["a", "b", "c"], 9, 9);
        let [a, b, c] = &upstream.servers[..] else { panic!("three servers") };
        a.set_sick(true);
        upstream.note(b, false);
        upstream.note(a, true);
        for _ in 0..3 {
            assert_eq!(order(&upstream), ["c", "b", "a"]);
        }
        let rest: Vec<&str> = upstream.order(&[c]).into_iter().map(|server| server.authority.as_str()).collect();
        assert_eq!(rest, ["b", "a"]);
    }

    #[tokio::test]
    async fn a_full_server_is_passed_over() {
        let upstream = upstream(&["a", "b"], 1, 0);
        let first = upstream.seat(&[], LONG).await.expect("a place").expect("a server");
        let second = upstream.seat(&[], LONG).await.expect("a place").expect("a server");
        assert_ne!(name(&first), name(&second));
        assert!(upstream.seat(&[], LONG).await.is_err());
        assert!(upstream.seat(&[first.server, second.server], LONG).await.expect("none is wanted").is_none());
        let free = name(&first);
        drop(first);
        assert_eq!(name(&upstream.seat(&[], LONG).await.expect("a place").expect("a server")), free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_any_server_that_is_well_and_not_for_ever() {
        let upstream = upstream(&["a", "b", "sick"], 1, 1);
        upstream.servers[2].set_sick(true);
        let [a, b] = [0, 1].map(|_| upstream.seat(&[], LONG));
        let (_a, b) = (a.await.expect("a place").expect("a"), b.await.expect("a place").expect("b"));
        let free = name(&b);
        let (queued, ()) = tokio::join!(upstream.seat(&[], LONG), async {
            // The queue has one slot.
            assert!(upstream.seat(&[], LONG).await.is_err());
            drop(b);
        });
        let queued = queued.expect("a place").expect("a server");
        assert_eq!(name(&queued), free);
        assert!(upstream.seat(&[], Duration::from_secs(1)).await.is_err());
        drop(queued);
        assert!(upstream.seat(&[], LONG).await.is_ok());
    }
}
