//! The slots of an upstream's servers, and the places of requests that wait for one. Clients share both.
//!
//! A client gets another slot of a server as long as more slots are free than it holds ([`SlotLimit`]), so slow requests
//! of one client leave some to the others. A request keeps its slot until the end of the response, also after its client has
//! left.
//!
//! # Interleavings
//!
//! - **A slot becomes free while requests wait.** Under the lock, it goes to the first of them whose client may take it. No
//!   waiting request may take a slot that stays free, so a newcomer overtakes none.
//! - **A request stops waiting while it is given a slot.** The slot is in the channel, and is released with it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::share::{Holders, SlotLimit};
use tokio::sync::oneshot;

/// The slots of all servers of an upstream, and its queue.
#[derive(Debug)]
pub(crate) struct UpstreamSlots(Mutex<SlotState>);

#[derive(Debug)]
struct SlotState {
    /// By index of the server.
    servers: Box<[Holders<IpAddr>]>,
    queue: Holders<IpAddr>,
    /// The requests in the queue, in order of arrival.
    waiting: Vec<Waiting>,
    /// Number of the next request in the queue.
    next: u64,
}

/// A request in the queue.
#[derive(Debug)]
struct Waiting {
    number: u64,
    client: Option<IpAddr>,
    /// Indices of the servers that it waits for.
    servers: Box<[usize]>,
    granted: oneshot::Sender<RequestSlot>,
}

/// One of a server's slots. Released on drop.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    slots: Arc<UpstreamSlots>,
    server: usize,
    client: Option<IpAddr>,
}

/// A place in the queue. Released on drop.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    slots: Arc<UpstreamSlots>,
    number: u64,
    client: Option<IpAddr>,
    granted: oneshot::Receiver<RequestSlot>,
}

/// A slot, or a place in the queue.
#[derive(Debug)]
pub(crate) enum SlotOrPlace {
    Slot(RequestSlot),
    Place(QueuePlace),
}

impl UpstreamSlots {
    /// Creates the slots of servers with these limits, and a queue with this one.
    pub(crate) fn new(servers: impl Iterator<Item = SlotLimit>, queue: SlotLimit) -> Arc<Self> {
        let state = SlotState {
            servers: servers.map(Holders::new).collect(),
            queue: Holders::new(queue),
            waiting: Vec::new(),
            next: 0,
        };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Takes a slot at the first of these servers that has one for this client, and otherwise a place in the queue for them.
    /// Returns `None` if the queue has none for this client. Requests without a known client share all slots.
    pub(crate) fn take(
        self: &Arc<Self>,
        servers: &[usize],
        client: Option<IpAddr>,
    ) -> Option<SlotOrPlace> {
        let mut state = self.lock();
        if let Some(server) = servers
            .iter()
            .copied()
            .find(|server| state.servers[*server].take(client.as_ref(), 1))
        {
            return Some(SlotOrPlace::Slot(RequestSlot {
                slots: Arc::clone(self),
                server,
                client,
            }));
        }
        if !state.queue.take(client.as_ref(), 1) {
            return None;
        }
        let (number, (sender, granted)) = (state.next, oneshot::channel());
        state.next += 1;
        state.waiting.push(Waiting {
            number,
            client,
            servers: servers.into(),
            granted: sender,
        });
        Some(SlotOrPlace::Place(QueuePlace {
            slots: Arc::clone(self),
            number,
            client,
            granted,
        }))
    }

    /// Returns the number of requests at a server, and `true` if it has no slot for this client.
    pub(crate) fn load(&self, server: usize, client: Option<IpAddr>) -> (u32, bool) {
        let state = self.lock();
        let server = &state.servers[server];
        (server.taken(), !server.has_room(client.as_ref(), 1))
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> u32 {
        self.lock().queue.taken()
    }

    fn release(self: &Arc<Self>, server: usize, client: Option<IpAddr>) {
        let granted = self.lock().release(server, client);
        for one in granted {
            // A request that no longer waits returns its slot, which goes to the next one.
            drop(one.granted.send(RequestSlot {
                slots: Arc::clone(self),
                server,
                client: one.client,
            }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    /// Releases a slot, and takes it for waiting requests: for several, if more than one client may have another slot now.
    fn release(&mut self, server: usize, client: Option<IpAddr>) -> Vec<Waiting> {
        let (holders, mut granted) = (&mut self.servers[server], Vec::new());
        holders.release(client.as_ref(), 1);
        while let Some(at) = self
            .waiting
            .iter()
            .position(|one| one.servers.contains(&server) && holders.take(one.client.as_ref(), 1))
        {
            granted.push(self.waiting.remove(at));
        }
        granted
    }
}

impl RequestSlot {
    /// Returns the index of its server.
    pub(crate) fn server(&self) -> usize {
        self.server
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.slots.release(self.server, self.client);
    }
}

impl QueuePlace {
    /// Waits for a slot. Returns `None` only if the queue has dropped this place, which it never does.
    pub(crate) async fn slot(&mut self) -> Option<RequestSlot> {
        (&mut self.granted).await.ok()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.queue.release(self.client.as_ref(), 1);
        if let Some(at) = state
            .waiting
            .iter()
            .position(|one| one.number == self.number)
        {
            state.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn slots(servers: &[u32], queue: u32) -> Arc<UpstreamSlots> {
        let limit = |total| SlotLimit {
            total,
            per_client: None,
        };
        UpstreamSlots::new(servers.iter().copied().map(limit), limit(queue))
    }

    const CLIENTS: [Option<IpAddr>; 4] = [
        None,
        Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))),
        Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3))),
    ];

    fn slot(taken: Option<SlotOrPlace>) -> RequestSlot {
        let Some(SlotOrPlace::Slot(slot)) = taken else {
            panic!("no slot, but {taken:?}")
        };
        slot
    }

    fn place(taken: Option<SlotOrPlace>) -> QueuePlace {
        let Some(SlotOrPlace::Place(place)) = taken else {
            panic!("no place, but {taken:?}")
        };
        place
    }

    #[test]
    fn a_client_leaves_half_of_the_slots_and_of_the_queue_to_others() {
        let slots = slots(&[10], 6);
        let _held: Vec<_> = (0..5).map(|_| slot(slots.take(&[0], CLIENTS[1]))).collect();
        let _waiting: Vec<_> = (0..3)
            .map(|_| place(slots.take(&[0], CLIENTS[1])))
            .collect();
        assert!(slots.take(&[0], CLIENTS[1]).is_none());
        assert_eq!(
            (
                slots.load(0, CLIENTS[1]),
                slots.load(0, CLIENTS[2]),
                slots.waiting()
            ),
            ((5, true), (5, false), 3)
        );
        let _other = slot(slots.take(&[0], CLIENTS[2]));
    }

    #[test]
    fn a_free_slot_goes_to_the_first_request_whose_client_may_have_it() {
        let slots = slots(&[2], 9);
        let (first, second) = (
            slot(slots.take(&[0], CLIENTS[1])),
            slot(slots.take(&[0], CLIENTS[2])),
        );
        let mut greedy = place(slots.take(&[0], CLIENTS[1]));
        let mut modest = place(slots.take(&[0], CLIENTS[3]));
        drop(second);
        assert!(
            greedy.granted.try_recv().is_err(),
            "its client has as many slots as are free"
        );
        let third = modest.granted.try_recv().expect("a slot");
        drop(first);
        assert!(greedy.granted.try_recv().is_ok());
        drop((greedy, modest, third));
        assert_eq!((slots.load(0, None), slots.waiting()), ((0, false), 0));
    }

    #[test]
    fn a_request_that_left_passes_its_slot_on() {
        let slots = slots(&[1], 9);
        let held = slot(slots.take(&[0], CLIENTS[1]));
        let left = place(slots.take(&[0], CLIENTS[2]));
        let mut next = place(slots.take(&[0], CLIENTS[3]));
        drop(held);
        assert!(
            next.granted.try_recv().is_err(),
            "the slot waits for the first request"
        );
        drop(left);
        assert_eq!(next.granted.try_recv().expect("a slot").server(), 0);
    }

    #[test]
    fn a_request_waits_for_its_own_servers_only() {
        let slots = slots(&[1, 1], 9);
        let held = [0, 1].map(|server| slot(slots.take(&[server], CLIENTS[1])));
        let mut waiting = place(slots.take(&[1], CLIENTS[2]));
        let [first, second] = held;
        drop(first);
        assert!(waiting.granted.try_recv().is_err());
        drop(second);
        assert_eq!(waiting.granted.try_recv().expect("a slot").server(), 1);
    }

    #[test]
    fn requests_without_a_client_share_all_slots() {
        let slots = slots(&[3], 1);
        let _held: Vec<_> = (0..3).map(|_| slot(slots.take(&[0], None))).collect();
        let _place = place(slots.take(&[0], None));
        assert!(slots.take(&[0], None).is_none());
    }
}
