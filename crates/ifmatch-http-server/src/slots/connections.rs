//! Slots for connections, with eviction of idle connections for new ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_core::share::SlotLimit;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::peers::{ConnectedPeer, CountedConnection, Peers};
use crate::connection::activity::ConnectionActivity;
use crate::limits::{ServerEvent, ServerObserver};

/// Minimum idle time before eviction. A client that was idle for less may be about to send a request.
const GRACE: Duration = Duration::from_secs(1);

/// Interval at which a waiting client looks for a connection that has become idle.
const PAUSE: Duration = Duration::from_millis(250);

/// Connections of listeners that share limits.
pub(crate) struct ConnectionSlots {
    limit: SlotLimit,
    /// Minimum idle time before eviction.
    grace: Duration,
    free: Arc<Semaphore>,
    peers: Arc<Peers>,
    registry: Mutex<Registry>,
    observer: Arc<dyn ServerObserver>,
}

/// Connections that can be evicted.
#[derive(Debug, Default)]
struct Registry {
    /// Number of the next connection.
    next: u64,
    /// By number, each with what tells it that it is evicted.
    open: HashMap<u64, (Arc<ConnectionActivity>, Arc<Notify>)>,
}

/// A connection slot, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connection: CountedConnection,
    _permit: OwnedSemaphorePermit,
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
        // Counts a full server as one with a last free slot: only the client's own limit refuses, and a full server waits.
        let taken = self.taken().min(self.limit.total - 1);
        let is_own = |activity: &ConnectionActivity| Arc::ptr_eq(&activity.client.peer, &peer);
        if !self.limit.grants(taken, peer.connections()) && !self.evict(is_own) {
            self.observer.observe(ServerEvent::ConnectionRefused);
            return None;
        }
        // Counted before waiting, so this client's next connection on another listener doesn't wait as well.
        let connection = CountedConnection::new(peer);
        let permit = self.wait_for_permit().await?;
        Some(ConnectionSlot {
            connection,
            _permit: permit,
        })
    }

    /// Waits for a free slot, and evicts a connection as soon as one is idle.
    async fn wait_for_permit(&self) -> Option<OwnedSemaphorePermit> {
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
        let idle_since = |activity: &ConnectionActivity| {
            let since = activity.idle_since().filter(|_| candidates(activity))?;
            (now.saturating_duration_since(since) >= self.grace).then_some(since)
        };
        loop {
            let open = registry.open.iter();
            let idle =
                open.filter_map(|(number, (activity, _))| Some((idle_since(activity)?, *number)));
            let Some((_, number)) = idle.min() else {
                return false;
            };
            // Not if a request has begun since.
            if let Entry::Occupied(connection) = registry.open.entry(number)
                && connection.get().0.evict()
            {
                connection.remove().1.notify_one();
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

impl ConnectionSlot {
    /// Returns the client that holds it.
    pub(crate) fn peer(&self) -> &Arc<ConnectedPeer> {
        self.connection.peer()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::connection::activity::{ConnectedClient, ServerPhase};
    use crate::limits::ServerLimits;
    use crate::slots::RequestSlots;

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
            let (address, peer) = (([127, 0, 0, 1], 1).into(), Arc::clone(slot.peer()));
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
        assert_eq!((test.0.taken(), other.slot.peer().connections()), (1, 1));
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
}
