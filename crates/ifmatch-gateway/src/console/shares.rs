//! A bounded amount of something, such as memory, in all and for each client.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use ifmatch_http_server::SlotLimit;

/// An amount that is shared.
#[derive(Debug)]
pub(super) struct Shares<K> {
    limit: SlotLimit,
    taken: Mutex<HashMap<K, u32>>,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub(super) struct Share<K: Eq + Hash> {
    of: Arc<Shares<K>>,
    owner: K,
    amount: u32,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    pub(super) fn new(limit: SlotLimit) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::default() })
    }

    /// Takes an amount, unless the limit of all or of this owner would be exceeded.
    pub(super) fn take(self: &Arc<Self>, owner: K, amount: u32) -> Option<Share<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&owner).copied().unwrap_or(0);
        let more = amount.saturating_sub(1);
        if !self.limit.grants(taken.values().sum::<u32>().saturating_add(more), own.saturating_add(more)) {
            return None;
        }
        taken.insert(owner.clone(), own + amount);
        Some(Share { of: Arc::clone(self), owner, amount })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = taken.get_mut(&self.owner) else { return };
        *own = own.saturating_sub(self.amount);
        if *own == 0 {
            taken.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_some_to_others_and_gives_all_back() {
        let shares = Shares::new(SlotLimit { total: 10, per_client: None });
        let first = shares.take("a", 5).unwrap();
        assert!(shares.take("a", 1).is_none() && shares.take("b", 6).is_none());
        let second = shares.take("b", 2).unwrap();
        drop(first);
        assert!(shares.take("a", 4).is_some() && shares.take("a", 5).is_none());
        drop(second);
        assert!(shares.taken.lock().unwrap().is_empty());
        let fixed = Shares::new(SlotLimit { total: 3, per_client: Some(2) });
        let taken = ["a", "a", "a", "b", "b"].map(|owner| fixed.take(owner, 1));
        assert_eq!(taken.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true, false]);
    }
}
