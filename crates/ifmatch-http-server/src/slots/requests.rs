//! Slots for requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use ifmatch_core::share::SlotLimit;

use super::peers::ConnectedPeer;
use crate::limits::{ServerEvent, ServerLimits, ServerObserver};

/// A server's request slots.
pub(crate) struct RequestSlots {
    limit: SlotLimit,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    streams: u32,
    observer: Arc<dyn ServerObserver>,
    /// Slots in use.
    taken: AtomicU32,
    /// Requests in progress, with or without a slot.
    open: AtomicU32,
}

/// A request slot, released on drop.
#[derive(Debug)]
pub struct RequestSlot {
    slots: Arc<RequestSlots>,
    peer: Arc<ConnectedPeer>,
}

impl RequestSlots {
    /// Creates the slots, all of them free.
    pub(crate) fn new(limits: &ServerLimits, observer: Arc<dyn ServerObserver>) -> Self {
        let (limit, streams) = (limits.requests, limits.streams);
        Self {
            limit,
            streams,
            observer,
            taken: AtomicU32::new(0),
            open: AtomicU32::new(0),
        }
    }

    /// Returns `true` if this client may begin another request, including one that gets refused. This also limits
    /// refusals and responses that need no slot. The limit allows as many of those as there are slots, plus one
    /// connection's streams.
    pub(crate) fn admits(&self, peer: &ConnectedPeer) -> bool {
        let SlotLimit { total, per_client } = self.limit;
        let extended = |slots: u32| slots.saturating_mul(2).saturating_add(self.streams);
        let limit = SlotLimit {
            total: extended(total),
            per_client: per_client.map(extended),
        };
        let admits = limit.grants(self.open.load(Relaxed), peer.open.load(Relaxed));
        if !admits {
            self.observer.observe(ServerEvent::RequestRefused);
        }
        admits
    }

    /// Records the start of a request.
    pub(crate) fn begin(&self, peer: &ConnectedPeer) {
        self.open.fetch_add(1, Relaxed);
        peer.open.fetch_add(1, Relaxed);
    }

    /// Records the end of a request.
    pub(crate) fn end(&self, peer: &ConnectedPeer) {
        self.open.fetch_sub(1, Relaxed);
        peer.open.fetch_sub(1, Relaxed);
    }

    /// Takes a slot. Returns `None` if there is none for this client.
    pub(crate) fn take(self: &Arc<Self>, peer: &Arc<ConnectedPeer>) -> Option<RequestSlot> {
        let taken = self.taken.fetch_add(1, Relaxed);
        let own = peer.requests.fetch_add(1, Relaxed);
        let slot = RequestSlot {
            slots: Arc::clone(self),
            peer: Arc::clone(peer),
        };
        let granted = self.limit.grants(taken, own);
        if !granted {
            self.observer.observe(ServerEvent::RequestRefused);
        }
        granted.then_some(slot)
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.slots.taken.fetch_sub(1, Relaxed);
        self.peer.requests.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for RequestSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSlots")
            .field("limit", &self.limit)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::slots::peers::Peers;

    fn slots(total: u32, streams: u32) -> Arc<RequestSlots> {
        let limits = ServerLimits {
            requests: SlotLimit {
                total,
                per_client: Some(2),
            },
            streams,
            ..ServerLimits::default()
        };
        Arc::new(RequestSlots::new(&limits, Arc::new(|_| ())))
    }

    fn peer(last: u8) -> Arc<ConnectedPeer> {
        Arc::<Peers>::default().of(Ipv4Addr::new(127, 0, 0, last).into())
    }

    #[test]
    fn slots_are_limited_in_total_and_per_client() {
        let (slots, one, two) = (slots(3, 1), peer(1), peer(2));
        let held = (slots.take(&one), slots.take(&one));
        assert!(held.0.is_some() && held.1.is_some() && slots.take(&one).is_none());
        let last = slots.take(&two);
        assert!(last.is_some() && slots.take(&two).is_none());
        drop(held);
        assert!(slots.take(&one).is_some() && slots.take(&two).is_some());
    }

    #[test]
    fn requests_without_a_slot_are_limited_as_well() {
        let (slots, peer) = (slots(10, 3), peer(1));
        for _ in 0..2 * 2 + 3 {
            assert!(slots.admits(&peer));
            slots.begin(&peer);
        }
        assert!(!slots.admits(&peer));
        slots.end(&peer);
        assert!(slots.admits(&peer));
    }
}
