//! Connection slots: admission, and eviction of idle connections for new ones.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::activity::Activity;
use crate::metrics::Metrics;
use crate::peer::{Peer, Peers};
use crate::share::Share;

/// Minimum idle time before eviction. A connection idle for less may be about to send a request.
const GRACE: Duration = Duration::from_secs(1);

/// Interval at which a waiting client looks for a connection that has become idle.
const PAUSE: Duration = Duration::from_millis(250);

/// A server's connections, on all of its listeners.
#[derive(Debug)]
pub(crate) struct Lobby {
    share: Share,
    grace: Duration,
    slots: Arc<Semaphore>,
    peers: Arc<Peers>,
    guests: Mutex<Guests>,
}

/// Connections that can be asked to close.
#[derive(Debug, Default)]
struct Guests {
    next: u64,
    present: HashMap<u64, (Arc<Activity>, Arc<Notify>)>,
}

/// A connection slot, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) peer: Arc<Peer>,
    slot: Option<OwnedSemaphorePermit>,
}

/// A connection that can be asked to close, registered until dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    lobby: Arc<Lobby>,
    number: u64,
    dismissed: Arc<Notify>,
}

impl Lobby {
    /// Creates a lobby with all slots free.
    pub(crate) fn new(share: Share) -> Self {
        let slots = Arc::new(Semaphore::new(share.all as usize));
        Self { share, grace: GRACE, slots, peers: Arc::default(), guests: Mutex::default() }
    }

    /// Returns a slot for a connection from this address. If all slots are taken, evicts the connection that was idle
    /// for longest, and waits while none is idle. A client at its limit gets another slot only in exchange for an idle
    /// connection of its own, and `None` otherwise.
    pub(crate) async fn place(&self, address: IpAddr, metrics: &Metrics) -> Option<Place> {
        let peer = self.peers.of(address);
        if !self.share.grants(self.taken().min(self.share.all - 1), peer.connections()) {
            if !self.dismiss(|activity| Arc::ptr_eq(&activity.peer, &peer)) {
                metrics.turned_away.connections.increment(1);
                return None;
            }
            metrics.turned_away.idle.increment(1);
        }
        // Counted before waiting, so that this client's next connection on another listener does not wait as well.
        peer.connections.fetch_add(1, Relaxed);
        let mut place = Place { peer, slot: None };
        place.slot = self.slot(metrics).await;
        place.slot.is_some().then_some(place)
    }

    async fn slot(&self, metrics: &Metrics) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                return Some(slot);
            }
            if self.dismiss(|_| true) {
                metrics.turned_away.idle.increment(1);
            }
            if let Ok(slot) = timeout(PAUSE, Arc::clone(&self.slots).acquire_owned()).await {
                return slot.ok();
            }
        }
    }

    /// Registers a connection that can be asked to close.
    pub(crate) fn welcome(self: &Arc<Self>, activity: &Arc<Activity>) -> Guest {
        let dismissed = Arc::<Notify>::default();
        let mut guests = self.guests();
        let number = guests.next;
        guests.next += 1;
        guests.present.insert(number, (Arc::clone(activity), Arc::clone(&dismissed)));
        Guest { lobby: Arc::clone(self), number, dismissed }
    }

    /// Returns the number of connections.
    pub(crate) fn taken(&self) -> u32 {
        let free = u32::try_from(self.slots.available_permits()).unwrap_or(u32::MAX);
        self.share.all.saturating_sub(free)
    }

    /// Waits until all connections have closed.
    pub(crate) async fn empty(&self) {
        drop(self.slots.acquire_many(self.share.all).await);
    }

    /// Asks the connection that was idle for longest to close, among those that `may_go`. Returns `false` if none is
    /// idle.
    fn dismiss(&self, may_go: impl Fn(&Activity) -> bool) -> bool {
        let mut guests = self.guests();
        let idle = guests.present.iter().filter(|(_, (activity, _))| may_go(activity));
        let idle = idle.filter_map(|(number, (activity, _))| Some((activity.idle()?, Reverse(*number))));
        let idlest = idle.filter(|(idle, _)| *idle >= self.grace).max();
        let guest = idlest.and_then(|(_, Reverse(number))| guests.present.remove(&number));
        let Some((_, dismissed)) = guest else { return false };
        dismissed.notify_one();
        true
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Waits until the connection is asked to close.
    pub(crate) async fn dismissed(&self) {
        self.dismissed.notified().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.lobby.guests().present.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.peer.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    /// An open connection.
    struct Open {
        activity: Arc<Activity>,
        guest: Guest,
        place: Place,
    }

    struct Test {
        lobby: Arc<Lobby>,
        metrics: Metrics,
    }

    impl Test {
        fn new(grace: Duration, all: u32, per_client: Option<u32>) -> Self {
            let (metrics, _recorder) = Metrics::new().unwrap();
            let lobby = Lobby { grace, ..Lobby::new(Share { all, per_client }) };
            Self { lobby: Arc::new(lobby), metrics }
        }

        async fn place(&self, address: u8) -> Option<Place> {
            self.lobby.place([127, 0, 0, address].into(), &self.metrics).await
        }

        fn welcome(&self, place: Place) -> Open {
            let activity = Arc::new(Activity::new(Arc::clone(&place.peer)));
            Open { guest: self.lobby.welcome(&activity), activity, place }
        }

        async fn open(&self, address: u8) -> Open {
            let place = self.place(address).await.expect("a place");
            self.welcome(place)
        }
    }

    async fn is_dismissed(open: &Open) -> bool {
        is_ready(pin!(open.guest.dismissed())).await
    }

    async fn is_ready<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn the_connection_that_was_idle_for_longest_makes_room() {
        let test = Test::new(Duration::ZERO, 3, Some(3));
        let working = test.open(1).await;
        let _request = working.activity.begin();
        let was_used = test.open(2).await;
        let idle = test.open(3).await;
        while was_used.activity.idle() >= idle.activity.idle() {
            drop(was_used.activity.begin());
        }
        let mut newcomer = pin!(test.place(4));
        assert!(!is_ready(newcomer.as_mut()).await);
        assert_eq!((is_dismissed(&working).await, is_dismissed(&was_used).await), (false, false));
        assert!(is_dismissed(&idle).await);
        drop(idle);
        assert!(newcomer.await.is_some());
    }

    #[tokio::test]
    async fn a_newcomer_waits_while_all_are_at_work() {
        let test = Test::new(Duration::ZERO, 1, None);
        let first = test.open(1).await;
        let request = first.activity.begin();
        let mut newcomer = pin!(test.place(2));
        assert!(!is_ready(newcomer.as_mut()).await && !is_dismissed(&first).await);
        drop(request);
        let leaving = async {
            first.guest.dismissed().await;
            drop(first);
        };
        assert!(tokio::join!(newcomer, leaving).0.is_some());
    }

    #[tokio::test]
    async fn a_client_with_its_share_gives_up_an_idle_connection_or_gets_no_other() {
        let test = Test::new(Duration::ZERO, 10, Some(2));
        let (first, second, other) = (test.open(1).await, test.open(1).await, test.open(2).await);
        let work = (first.activity.begin(), second.activity.begin());
        assert!(test.place(1).await.is_none() && !is_dismissed(&other).await);
        drop(work);
        let third = test.place(1).await;
        assert!(third.is_some() && is_dismissed(&first).await != is_dismissed(&second).await);
        assert_eq!(test.lobby.taken(), 4);
        drop((first, second, third));
        assert_eq!((test.lobby.taken(), other.place.peer.connections()), (1, 1));
    }

    #[tokio::test]
    async fn a_connection_that_was_just_used_stays() {
        let test = Test::new(Duration::from_hours(1), 10, Some(1));
        let first = test.open(1).await;
        drop(first.activity.begin());
        assert!(test.place(1).await.is_none() && !is_dismissed(&first).await);
    }

    #[tokio::test]
    async fn one_client_cannot_have_all_places() {
        let test = Test::new(Duration::ZERO, 10, None);
        let mut held = Vec::new();
        while let Some(place) = test.place(1).await {
            let open = test.welcome(place);
            held.push((open.activity.begin(), open));
        }
        assert_eq!(held.len(), 5);
        assert!(test.place(2).await.is_some());
    }
}
