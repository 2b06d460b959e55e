//! A client as seen by the network: an address and the resources it holds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ifmatch_core::share::network;

/// Connected clients.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<IpAddr, Weak<Peer>>>);

/// One client: all connections from one address.
#[derive(Debug)]
pub(crate) struct Peer {
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
    pub(crate) fn of(self: &Arc<Self>, address: IpAddr) -> Arc<Peer> {
        let network = network(address);
        let mut peers = self.lock();
        if let Some(peer) = peers.get(&network).and_then(Weak::upgrade) {
            return peer;
        }
        let (connections, requests, open) = Default::default();
        let peer = Arc::new(Peer { network, connections, requests, open, peers: Arc::clone(self) });
        peers.insert(network, Arc::downgrade(&peer));
        peer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Weak<Peer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Returns its address, or the start of its network.
    pub(crate) fn network(&self) -> IpAddr {
        self.network
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        // Another client may have replaced it meanwhile.
        if peers.get(&self.network).is_some_and(|peer| peer.strong_count() == 0) {
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
