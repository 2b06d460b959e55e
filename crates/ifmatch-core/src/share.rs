//! Shares of a server's slots: each client leaves some of them for the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

/// Prefix length of an IPv6 network. All addresses of a network count as one client.
const NETWORK_BITS: u32 = 64;

/// Returns the address that stands for a client: its IPv4 address, or the start of its IPv6 network (/64).
///
/// ```
/// use ifmatch_core::share::network;
///
/// assert_eq!(network("2001:db8:0:1::7".parse()?), network("2001:db8:0:1:ffff::1".parse()?));
/// assert_eq!(network("::ffff:192.0.2.7".parse()?), network("192.0.2.7".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - NETWORK_BITS))).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A number of slots, and how many of them one client may take.
///
/// By default, a client gets another slot only while more slots are free than it already holds. A lone client can take
/// half of them, two competing clients a third each, and a new client gets a slot as long as any is free.
///
/// ```
/// use ifmatch_core::share::SlotLimit;
///
/// let limit = SlotLimit { total: 10, per_client: None };
/// assert!(limit.grants(4, 4) && !limit.grants(5, 5));
/// assert!(limit.grants(5, 0));
/// assert!(SlotLimit { total: 10, per_client: Some(10) }.grants(9, 9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimit {
    /// Total number of slots.
    pub total: u32,
    /// Maximum number of slots per client, or `None` for the default.
    pub per_client: Option<u32>,
}

impl SlotLimit {
    /// Returns `true` if a client that holds `own` of the `taken` slots gets another one.
    pub fn grants(self, taken: u32, own: u32) -> bool {
        let free = self.total.saturating_sub(taken);
        free > 0 && own < self.per_client.unwrap_or(free)
    }
}

/// Slots, and the owners that hold them, such as clients.
///
/// ```
/// use ifmatch_core::share::{Holders, SlotLimit};
///
/// let mut slots = Holders::new(SlotLimit { total: 10, per_client: None });
/// assert!(slots.take(Some(&"a"), 5) && !slots.take(Some(&"a"), 1), "an owner leaves half to others");
/// assert!(slots.take(None, 5) && !slots.take(None, 1), "without an owner, all that is free");
/// slots.release(Some(&"a"), 5);
/// assert_eq!(slots.taken(), 5);
/// ```
#[derive(Debug)]
pub struct Holders<K> {
    limit: SlotLimit,
    taken: u32,
    by_owner: HashMap<K, u32>,
}

impl<K: Clone + Eq + Hash> Holders<K> {
    /// Creates slots that are all free.
    pub fn new(limit: SlotLimit) -> Self {
        Self {
            limit,
            taken: 0,
            by_owner: HashMap::new(),
        }
    }

    /// Returns the number of slots that are taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns `true` if an owner may take `amount` more slots. Without an owner, only the total limit applies.
    pub fn has_room(&self, owner: Option<&K>, amount: u32) -> bool {
        // The last one of them must be granted.
        let others = amount.saturating_sub(1);
        let own = owner.map_or(0, |owner| {
            self.by_owner
                .get(owner)
                .copied()
                .unwrap_or_default()
                .saturating_add(others)
        });
        self.limit.grants(self.taken.saturating_add(others), own)
    }

    /// Takes `amount` slots. Returns `false`, and takes none, if there is [no room](Self::has_room) for them.
    #[must_use]
    pub fn take(&mut self, owner: Option<&K>, amount: u32) -> bool {
        let has_room = self.has_room(owner, amount);
        if has_room {
            self.taken += amount;
            if let Some(owner) = owner {
                *self.by_owner.entry(owner.clone()).or_default() += amount;
            }
        }
        has_room
    }

    /// Returns slots that this owner has taken.
    pub fn release(&mut self, owner: Option<&K>, amount: u32) {
        self.taken -= amount;
        let Some(owner) = owner else { return };
        let Some(own) = self.by_owner.get_mut(owner) else {
            return;
        };
        *own -= amount;
        if *own == 0 {
            self.by_owner.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the slots held by each of this number of clients after all have taken turns to get as many as possible.
    fn greedy(limit: SlotLimit, clients: usize) -> Vec<u32> {
        let mut held = vec![0; clients];
        loop {
            let before = held.clone();
            for client in 0..clients {
                held[client] += u32::from(limit.grants(held.iter().sum(), held[client]));
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn a_new_client_gets_a_slot_among_any_number_of_others() {
        let limit = SlotLimit {
            total: 1000,
            per_client: None,
        };
        for clients in [1, 2, 3, 10, 100] {
            let held = greedy(limit, clients);
            assert!(limit.grants(held.iter().sum(), 0), "{held:?}");
            assert!(
                held.iter()
                    .all(|held| usize::try_from(*held).unwrap() >= 1000 / (clients + 1)),
                "{held:?}"
            );
        }
    }

    #[test]
    fn holders_are_forgotten_once_they_hold_nothing() {
        let mut slots = Holders::new(SlotLimit {
            total: 3,
            per_client: Some(2),
        });
        assert!(
            slots.take(Some(&1), 2)
                && !slots.take(Some(&1), 1)
                && slots.take(Some(&2), 1)
                && !slots.take(Some(&3), 1)
        );
        slots.release(Some(&1), 1);
        assert_eq!((slots.taken(), slots.by_owner.len()), (2, 2));
        slots.release(Some(&1), 1);
        slots.release(Some(&2), 1);
        assert_eq!((slots.taken(), slots.by_owner.len()), (0, 0));
    }

    #[test]
    fn a_single_slot_can_be_taken() {
        let limit = SlotLimit {
            total: 1,
            per_client: None,
        };
        assert!(limit.grants(0, 0) && !limit.grants(1, 0) && !limit.grants(1, 1));
    }

    #[test]
    fn a_fixed_limit_per_client_ignores_free_slots() {
        let limit = SlotLimit {
            total: 10,
            per_client: Some(3),
        };
        assert_eq!(greedy(limit, 2), [3, 3]);
        assert_eq!(greedy(limit, 5).iter().sum::<u32>(), 10);
    }
}
