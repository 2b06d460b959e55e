//! Shares of a server's slots: a client leaves some of them to the others.

use std::net::{IpAddr, Ipv6Addr};

/// Prefix length of an IPv6 network. All addresses of a network count as one client.
const NETWORK_BITS: u32 = 64;

/// Returns the address by which a client counts: an IPv4 address, or the start of an IPv6 network (/64).
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
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - NETWORK_BITS))).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A number of slots, and the part of them that one client may take.
///
/// By default, a client gets another slot as long as more slots are free than it holds. A single client takes at most
/// half of them, two clients a third each, and a newcomer always finds some.
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
        let limit = SlotLimit { total: 1000, per_client: None };
        for clients in [1, 2, 3, 10, 100] {
            let held = greedy(limit, clients);
            assert!(limit.grants(held.iter().sum(), 0), "{held:?}");
            assert!(held.iter().all(|held| usize::try_from(*held).unwrap() >= 1000 / (clients + 1)), "{held:?}");
        }
    }

    #[test]
    fn a_single_slot_can_be_taken() {
        let limit = SlotLimit { total: 1, per_client: None };
        assert!(limit.grants(0, 0) && !limit.grants(1, 0) && !limit.grants(1, 1));
    }

    #[test]
    fn a_fixed_limit_per_client_ignores_free_slots() {
        let limit = SlotLimit { total: 10, per_client: Some(3) };
        assert_eq!(greedy(limit, 2), [3, 3]);
        assert_eq!(greedy(limit, 5).iter().sum::<u32>(), 10);
    }
}
