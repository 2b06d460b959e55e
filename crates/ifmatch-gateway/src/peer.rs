//! A client as the network shows it: an address, and what it holds of the server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bits of an IPv6 address that name its network. One client has all addresses of its network.
const NETWORK_BITS: u32 = 64;

/// The clients that are connected.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<IpAddr, Weak<Peer>>>);

/// One client: all connections of one address.
#[derive(Debug)]
pub(crate) struct Peer {
    network: IpAddr,
    /// Connections that are open.
    pub(crate) connections: AtomicU32,
    /// Requests that are being worked on.
    pub(crate) requests: AtomicU32,
    /// Requests that have begun, those that are refused included.
    pub(crate) open: AtomicU32,
    peers: Arc<Peers>,
}

impl Peers {
    /// The client of this address, for as long as it is held.
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
    /// Connections that are open.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        // Another one may have taken its place meanwhile.
        if peers.get(&self.network).is_some_and(|peer| peer.strong_count() == 0) {
            peers.remove(&self.network);
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - NETWORK_BITS))).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_is_one_client_and_is_forgotten_with_its_last_connection() {
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
