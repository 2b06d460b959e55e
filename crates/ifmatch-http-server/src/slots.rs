//! Slots for connections and requests, with eviction of idle connections for new ones, and the clients that hold them.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ifmatch_core::share::{SlotLimit, network};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::connection::activity::ConnectionActivity;
use crate::limits::ServerLimits;
use crate::limits::{ServerEvent, ServerObserver};

/// Minimum idle time before eviction. A connection idle for less may be about to send a request.
const GRACE: Duration = Duration::from_secs(1);

/// Interval at which a waiting client looks for a connection that has become idle.
const PAUSE: Duration = Duration::from_millis(250);

/// Connections of listeners that share limits.
pub(crate) struct ConnectionSlots {
    limit: SlotLimit,
    grace: Duration,
    free: Arc<Semaphore>,
    peers: Arc<Peers>,
    registry: Mutex<Registry>,
    observer: Arc<dyn ServerObserver>,
}

/// Connections that can be evicted.
#[derive(Debug, Default)]
struct Registry {
    next: u64,
    open: HashMap<u64, (Arc<ConnectionActivity>, Arc<Notify>)>,
}

/// A connection slot, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    pub(crate) peer: Arc<ConnectedPeer>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A connection that can be evicted, registered until dropped.
pub(crate) struct EvictionRegistration {
    slots: Arc<ConnectionSlots>,
    number: u64,
    evicted: Arc<Notify>,
}

impl ConnectionSlots {
    /// Creates the slots, all of them free.
    pub(crate) fn new(limit: SlotLimit, observer: Arc<dyn ServerObserver>) -> Self {
        let free = Arc::new(Semaphore::new(limit.total as usize));
        Self {
            limit,
            grace: GRACE,
            free,
            peers: Arc::default(),
            registry: Mutex::default(),
            observer,
        }
    }

    /// Returns a slot for a connection from this address. If all slots are taken, evicts the connection that was idle
    /// for longest, and waits while none is idle. A client at its limit gets another slot only in exchange for an idle
    /// connection of its own, and `None` otherwise.
    pub(crate) async fn take(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let peer = self.peers.of(address);
        if !self
            .limit
            .grants(self.taken().min(self.limit.total - 1), peer.connections())
            && !self.evict(|activity| Arc::ptr_eq(&activity.client.peer, &peer))
        {
            self.observer.observe(ServerEvent::ConnectionRefused);
            return None;
        }
        // Counted before waiting, so this client's next connection on another listener doesn't wait as well.
        peer.connections.fetch_add(1, Relaxed);
        let mut slot = ConnectionSlot { peer, permit: None };
        slot.permit = self.permit().await;
        slot.permit.is_some().then_some(slot)
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return Some(permit);
            }
            self.evict(|_| true);
            if let Ok(permit) = timeout(PAUSE, Arc::clone(&self.free).acquire_owned()).await {
                return permit.ok();
            }
        }
    }

    /// Registers a connection, so it can be evicted.
    pub(crate) fn register(
        self: &Arc<Self>,
        activity: &Arc<ConnectionActivity>,
    ) -> EvictionRegistration {
        let evicted = Arc::<Notify>::default();
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        registry
            .open
            .insert(number, (Arc::clone(activity), Arc::clone(&evicted)));
        EvictionRegistration {
            slots: Arc::clone(self),
            number,
            evicted,
        }
    }

    /// Returns the number of connections.
    pub(crate) fn taken(&self) -> u32 {
        let free = u32::try_from(self.free.available_permits()).unwrap_or(u32::MAX);
        self.limit.total.saturating_sub(free)
    }

    /// Waits until all connections have closed.
    pub(crate) async fn all_free(&self) {
        drop(self.free.acquire_many(self.limit.total).await);
    }

    /// Evicts the connection that was idle for longest among the `candidates`. Returns `false` if none is idle.
    fn evict(&self, candidates: impl Fn(&ConnectionActivity) -> bool) -> bool {
        let mut registry = self.registry();
        let now = Instant::now();
        loop {
            let idle = registry
                .open
                .iter()
                .filter(|(_, (activity, _))| candidates(activity));
            let idle =
                idle.filter_map(|(number, (activity, _))| Some((activity.idle_since()?, *number)));
            let oldest = idle
                .filter(|(since, _)| now.saturating_duration_since(*since) >= self.grace)
                .min();
            let Some((_, number)) = oldest else {
                return false;
            };
            // Otherwise a request has begun since.
            if registry
                .open
                .get(&number)
                .is_some_and(|(activity, _)| activity.evict())
            {
                registry
                    .open
                    .remove(&number)
                    .inspect(|(_, evicted)| evicted.notify_one());
                self.observer.observe(ServerEvent::IdleConnectionEvicted);
                return true;
            }
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EvictionRegistration {
    /// Waits until the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for EvictionRegistration {
    fn drop(&mut self) {
        self.slots.registry().open.remove(&self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.peer.connections.fetch_sub(1, Relaxed);
    }
}

/// A server's request slots.
pub(crate) struct RequestSlots {
    limit: SlotLimit,
    streams: u32,
    observer: Arc<dyn ServerObserver>,
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

/// Connected clients.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<IpAddr, Weak<ConnectedPeer>>>);

/// One client: all connections from one address.
#[derive(Debug)]
pub(crate) struct ConnectedPeer {
    network: IpAddr,
    /// Open connections.
    pub(crate) connections: AtomicU32,
    /// Requests in progress.
    pub(crate) requests: AtomicU32,
    /// Requests that have begun, including refused ones.
    pub(crate) open: AtomicU32,
    peers: Arc<Peers>,
}

impl Peers {
    /// Returns the client of this address, tracked until dropped.
    pub(crate) fn of(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectedPeer> {
        let network = network(address);
        let mut peers = self.lock();
        if let Some(peer) = peers.get(&network).and_then(Weak::upgrade) {
            return peer;
        }
        let (connections, requests, open) = Default::default();
        let peer = Arc::new(ConnectedPeer {
            network,
            connections,
            requests,
            open,
            peers: Arc::clone(self),
        });
        peers.insert(network, Arc::downgrade(&peer));
        peer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Weak<ConnectedPeer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectedPeer {
    /// Returns its address, or the start of its network.
    pub(crate) fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

impl Drop for ConnectedPeer {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        // Another client may have replaced it meanwhile.
        if peers
            .get(&self.network)
            .is_some_and(|peer| peer.strong_count() == 0)
        {
            peers.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::connection::activity::{ConnectedClient, ServerPhase};

    /// An open connection.
    struct Open {
        activity: Arc<ConnectionActivity>,
        registration: EvictionRegistration,
        slot: ConnectionSlot,
    }

    struct Test(Arc<ConnectionSlots>);

    impl Test {
        fn new(grace: Duration, total: u32, per_client: Option<u32>) -> Self {
            let slots = ConnectionSlots::new(SlotLimit { total, per_client }, Arc::new(|_| ()));
            Self(Arc::new(ConnectionSlots { grace, ..slots }))
        }

        async fn take(&self, address: u8) -> Option<ConnectionSlot> {
            self.0.take([127, 0, 0, address].into()).await
        }

        fn register(&self, slot: ConnectionSlot) -> Open {
            let requests = Arc::new(RequestSlots::new(
                &ServerLimits::default(),
                Arc::new(|_| ()),
            ));
            let (address, peer) = (([127, 0, 0, 1], 1).into(), Arc::clone(&slot.peer));
            let phase = tokio::sync::watch::channel(ServerPhase::Serving).1;
            let activity = Arc::new(ConnectionActivity::new(ConnectedClient {
                address,
                is_secure: false,
                peer,
                requests,
                phase,
            }));
            Open {
                registration: self.0.register(&activity),
                activity,
                slot,
            }
        }

        async fn open(&self, address: u8) -> Open {
            let slot = self.take(address).await.expect("a free slot");
            self.register(slot)
        }
    }

    async fn is_evicted(open: &Open) -> bool {
        is_ready(pin!(open.registration.evicted())).await
    }

    async fn is_ready<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn the_connection_idle_for_longest_is_evicted() {
        let test = Test::new(Duration::ZERO, 3, Some(3));
        let working = test.open(1).await;
        let _request = working.activity.begin();
        let was_used = test.open(2).await;
        let idle = test.open(3).await;
        while was_used.activity.idle_since() <= idle.activity.idle_since() {
            drop(was_used.activity.begin());
        }
        let mut newcomer = pin!(test.take(4));
        assert!(!is_ready(newcomer.as_mut()).await);
        assert_eq!(
            (is_evicted(&working).await, is_evicted(&was_used).await),
            (false, false)
        );
        assert!(is_evicted(&idle).await);
        drop(idle);
        assert!(newcomer.await.is_some());
    }

    #[tokio::test]
    async fn a_new_connection_waits_while_all_are_busy() {
        let test = Test::new(Duration::ZERO, 1, None);
        let first = test.open(1).await;
        let request = first.activity.begin();
        let mut newcomer = pin!(test.take(2));
        assert!(!is_ready(newcomer.as_mut()).await && !is_evicted(&first).await);
        drop(request);
        let leaving = async {
            first.registration.evicted().await;
            drop(first);
        };
        assert!(tokio::join!(newcomer, leaving).0.is_some());
    }

    #[tokio::test]
    async fn a_client_at_its_limit_must_give_up_an_idle_connection() {
        let test = Test::new(Duration::ZERO, 10, Some(2));
        let (first, second, other) = (test.open(1).await, test.open(1).await, test.open(2).await);
        let work = (first.activity.begin(), second.activity.begin());
        assert!(test.take(1).await.is_none() && !is_evicted(&other).await);
        drop(work);
        let third = test.take(1).await;
        assert!(third.is_some() && is_evicted(&first).await != is_evicted(&second).await);
        assert_eq!(test.0.taken(), 4);
        drop((first, second, third));
        assert_eq!((test.0.taken(), other.slot.peer.connections()), (1, 1));
    }

    #[tokio::test]
    async fn a_recently_used_connection_is_not_evicted() {
        let test = Test::new(Duration::from_hours(1), 10, Some(1));
        let first = test.open(1).await;
        drop(first.activity.begin());
        assert!(test.take(1).await.is_none() && !is_evicted(&first).await);
    }

    /// The request arrives before the connection notices that it is evicted.
    #[tokio::test]
    async fn a_request_does_not_keep_an_evicted_connection() {
        let test = Test::new(Duration::ZERO, 10, Some(1));
        let first = test.open(1).await;
        let second = test.open(1).await;
        assert!(first.activity.begin().is_none() && is_evicted(&first).await);
        let request = second.activity.begin();
        assert!(request.is_some() && test.take(1).await.is_none());
    }

    #[tokio::test]
    async fn one_client_cannot_take_all_slots() {
        let test = Test::new(Duration::ZERO, 10, None);
        let mut held = Vec::new();
        while let Some(slot) = test.take(1).await {
            let open = test.register(slot);
            held.push((open.activity.begin(), open));
        }
        assert_eq!(held.len(), 5);
        assert!(test.take(2).await.is_some());
    }

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

    #[test]
    fn a_network_is_one_client_until_its_last_connection_closes() {
        let peers = Arc::new(Peers::default());
        let of = |address: &str| peers.of(address.parse().unwrap());
        let client = of("192.0.2.7");
        assert!(Arc::ptr_eq(&client, &of("::ffff:192.0.2.7")));
        assert!(!Arc::ptr_eq(&client, &of("192.0.2.8")));
        let network = of("2001:db8:0:1::7");
        assert!(Arc::ptr_eq(&network, &of("2001:db8:0:1:ffff::1")));
        assert!(!Arc::ptr_eq(&network, &of("2001:db8:0:2::7")));
        drop((client, network));
        assert!(peers.lock().is_empty());
    }
}
