//! A bounded amount of something, such as memory, in all and for each client.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::share::SlotLimit;

/// An amount that owners share, such as clients: each gets more as long as the limit [grants](SlotLimit::grants) it.
///
/// ```
/// use ifmatch_blob::shares::Shares;
/// use ifmatch_core::share::SlotLimit;
///
/// let shares = Shares::new(SlotLimit { total: 10, per_client: None });
/// let taken = shares.take(Some("a"), 5).unwrap();
/// assert!(shares.take(Some("a"), 1).is_none(), "a client leaves half to others");
/// assert!(shares.take(Some("b"), 1).is_some());
/// drop(taken);
/// assert_eq!(shares.taken(), 0);
/// ```
#[derive(Debug)]
pub struct Shares<K> {
    limit: SlotLimit,
    taken: Mutex<Taken<K>>,
}

/// The amount taken, in all and by each owner.
#[derive(Debug)]
struct Taken<K> {
    total: u32,
    of: HashMap<K, u32>,
}

/// A part of the amount, until it is dropped.
#[derive(Debug)]
pub struct Share<K: Clone + Eq + Hash> {
    of: Arc<Shares<K>>,
    owner: Option<K>,
    amount: u32,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Creates shares of an amount.
    pub fn new(limit: SlotLimit) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::new(Taken { total: 0, of: HashMap::new() }) })
    }

    /// Begins an empty share. Without an owner, only the limit of all applies to it.
    pub fn begin(self: &Arc<Self>, owner: Option<K>) -> Share<K> {
        Share { of: Arc::clone(self), owner, amount: 0 }
    }

    /// Takes an amount, unless the limit of all or of this owner would be exceeded.
    pub fn take(self: &Arc<Self>, owner: Option<K>, amount: u32) -> Option<Share<K>> {
        let mut share = self.begin(owner);
        share.grow(amount).then_some(share)
    }

    /// Returns the amount that all have taken.
    pub fn taken(&self) -> u32 {
        self.lock().total
    }
}

impl<K> Shares<K> {
    fn lock(&self) -> MutexGuard<'_, Taken<K>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Share<K> {
    /// Takes more. Returns `false`, and takes nothing, if the limit of all or of this owner would be exceeded.
    #[must_use]
    pub fn grow(&mut self, amount: u32) -> bool {
        let mut taken = self.of.lock();
        let own = self.owner.as_ref().and_then(|owner| taken.of.get(owner)).copied().unwrap_or_default();
        // The last one of them must be granted.
        let others = amount.saturating_sub(1);
        let held = if self.owner.is_some() { own.saturating_add(others) } else { 0 };
        if !self.of.limit.grants(taken.total.saturating_add(others), held) {
            return false;
        }
        taken.total += amount;
        taken.of.extend(self.owner.clone().map(|owner| (owner, own + amount)));
        self.amount += amount;
        true
    }
}

impl<K: Clone + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        taken.total -= self.amount;
        let Some(owner) = &self.owner else { return };
        let Some(own) = taken.of.get_mut(owner) else { return };
        *own -= self.amount;
        if *own == 0 {
            taken.of.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_some_to_others_and_gives_all_back() {
        let shares = Shares::new(SlotLimit { total: 10, per_client: None });
        let first = shares.take(Some("a"), 5).unwrap();
        assert!(shares.take(Some("a"), 1).is_none() && shares.take(Some("b"), 6).is_none());
        let second = shares.take(Some("b"), 2).unwrap();
        drop(first);
        assert!(shares.take(Some("a"), 4).is_some() && shares.take(Some("a"), 5).is_none());
        drop(second);
        assert_eq!((shares.taken(), shares.lock().of.len()), (0, 0));
        let fixed = Shares::new(SlotLimit { total: 3, per_client: Some(2) });
        let taken = ["a", "a", "a", "b", "b"].map(|owner| fixed.take(Some(owner), 1));
        assert_eq!(taken.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true, false]);
    }

    #[test]
    fn a_share_grows_up_to_the_limit_and_keeps_what_it_has() {
        let shares = Shares::new(SlotLimit { total: 10, per_client: None });
        let mut share = shares.begin(Some("a"));
        assert!(share.grow(3) && share.grow(2) && !share.grow(1));
        let mut ownerless = shares.begin(None);
        assert!(ownerless.grow(5) && !ownerless.grow(1), "without an owner, all that is free");
        assert_eq!(shares.taken(), 10);
        drop((share, ownerless));
        assert_eq!((shares.taken(), shares.lock().of.len()), (0, 0));
    }
}
