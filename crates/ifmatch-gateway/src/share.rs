//! The part of a limited number of slots that one client may take.

/// A number of slots, and the part of them that one client may take.
///
/// By default, a client gets another slot as long as more slots are free than it holds. A single client takes at most
/// half of them, two clients a third each, and a newcomer always finds some.
///
/// ```
/// use ifmatch_gateway::share::Share;
///
/// let share = Share { all: 10, per_client: None };
/// assert!(share.grants(4, 4) && !share.grants(5, 5));
/// assert!(share.grants(5, 0));
/// assert!(Share { all: 10, per_client: Some(10) }.grants(9, 9));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Total number of slots.
    pub all: u32,
    /// Maximum number of slots per client, or `None` for the default.
    pub per_client: Option<u32>,
}

impl Share {
    /// Returns `true` if a client that holds `own` of the `taken` slots gets another one.
    pub fn grants(self, taken: u32, own: u32) -> bool {
        let free = self.all.saturating_sub(taken);
        free > 0 && own < self.per_client.unwrap_or(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the slots held by each of this number of clients after all have taken turns to get as many as possible.
    fn greedy(share: Share, clients: usize) -> Vec<u32> {
        let mut held = vec![0; clients];
        loop {
            let before = held.clone();
            for client in 0..clients {
                held[client] += u32::from(share.grants(held.iter().sum(), held[client]));
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn a_newcomer_gets_a_place_however_many_others_want_all() {
        let share = Share { all: 1000, per_client: None };
        for clients in [1, 2, 3, 10, 100] {
            let held = greedy(share, clients);
            assert!(share.grants(held.iter().sum(), 0), "{held:?}");
            assert!(held.iter().all(|held| usize::try_from(*held).unwrap() >= 1000 / (clients + 1)), "{held:?}");
        }
    }

    #[test]
    fn the_only_place_can_be_had() {
        let share = Share { all: 1, per_client: None };
        assert!(share.grants(0, 0) && !share.grants(1, 0) && !share.grants(1, 1));
    }

    #[test]
    fn a_fixed_share_holds_whatever_is_free() {
        let share = Share { all: 10, per_client: Some(3) };
        assert_eq!(greedy(share, 2), [3, 3]);
        assert_eq!(greedy(share, 5).iter().sum::<u32>(), 10);
    }
}
