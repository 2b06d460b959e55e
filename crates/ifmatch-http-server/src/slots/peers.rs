//! Connected clients, and what each of them holds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ifmatch_core::share::network;

/// Connected clients.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<IpAddr, Weak<ConnectedPeer>>>);

/// One client: all connections from one address.
#[derive(Debug)]
pub(crate) struct ConnectedPeer {
    network: IpAddr,
    /// Open connections.
    connections: AtomicU32,
    /// Requests in progress.
    pub(super) requests: AtomicU32,
    /// Requests that have begun, including refused ones.
    pub(super) open: AtomicU32,
    peers: Arc<Peers>,
}

/// A connection of a client, or one that waits for its slot. Counted until dropped.
#[derive(Debug)]
pub(super) struct CountedConnection(Arc<ConnectedPeer>);

impl CountedConnection {
    /// Counts a connection of this client.
    pub(super) fn new(peer: Arc<ConnectedPeer>) -> Self {
        peer.connections.fetch_add(1, Relaxed);
        Self(peer)
    }

    /// Returns the client.
    pub(super) fn peer(&self) -> &Arc<ConnectedPeer> {
        &self.0
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

impl Peers {
    /// Returns the client of this address, tracked until dropped.
    pub(super) fn of(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectedPeer> {
        let network = network(address);
        let mut peers = self.lock();
        if let Some(peer) = peers.get(&network).and_then(Weak::upgrade) {
            return peer;
        }
        let peer = Arc::new(ConnectedPeer {
            network,
            connections: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            open: AtomicU32::new(0),
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
    pub(super) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

impl Drop for ConnectedPeer {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        // Another client may have replaced it meanwhile.
        let current = peers.get(&self.network);
        if current.is_some_and(|peer| peer.strong_count() == 0) {
            peers.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
