//! A bounded resource, such as memory, limited in total and per client.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::share::{Holders, SlotLimit};

/// An amount shared by owners, such as clients. The limit [decides](SlotLimit::grants) who may take more.
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
pub struct Shares<K>(Mutex<Holders<K>>);

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
        Arc::new(Self(Mutex::new(Holders::new(limit))))
    }

    /// Begins an empty share. Without an owner, only the total limit applies.
    pub fn begin(self: &Arc<Self>, owner: Option<K>) -> Share<K> {
        Share {
            of: Arc::clone(self),
            owner,
            amount: 0,
        }
    }

    /// Takes an amount, unless it would exceed the total limit or this owner's.
    pub fn take(self: &Arc<Self>, owner: Option<K>, amount: u32) -> Option<Share<K>> {
        let mut share = self.begin(owner);
        share.grow(amount).then_some(share)
    }

    /// Returns the total amount taken.
    pub fn taken(&self) -> u32 {
        self.lock().taken()
    }
}

impl<K> Shares<K> {
    fn lock(&self) -> MutexGuard<'_, Holders<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Share<K> {
    /// Takes more. Returns `false`, and takes nothing, if it would exceed the total limit or this owner's.
    #[must_use]
    pub fn grow(&mut self, amount: u32) -> bool {
        let granted = self.of.lock().take(self.owner.as_ref(), amount);
        self.amount += if granted { amount } else { 0 };
        granted
    }
}

impl<K: Clone + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.of.lock().release(self.owner.as_ref(), self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_some_to_others_and_gives_all_back() {
        let shares = Shares::new(SlotLimit {
            total: 10,
            per_client: None,
        });
        let first = shares.take(Some("a"), 5).unwrap();
        assert!(shares.take(Some("a"), 1).is_none() && shares.take(Some("b"), 6).is_none());
        let second = shares.take(Some("b"), 2).unwrap();
        drop(first);
        assert!(shares.take(Some("a"), 4).is_some() && shares.take(Some("a"), 5).is_none());
        drop(second);
        assert_eq!(shares.taken(), 0);
        let fixed = Shares::new(SlotLimit {
            total: 3,
            per_client: Some(2),
        });
        let taken = ["a", "a", "a", "b", "b"].map(|owner| fixed.take(Some(owner), 1));
        assert_eq!(
            taken.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, true, false, true, false]
        );
    }

    #[test]
    fn a_share_grows_up_to_the_limit_and_keeps_what_it_has() {
        let shares = Shares::new(SlotLimit {
            total: 10,
            per_client: None,
        });
        let mut share = shares.begin(Some("a"));
        assert!(share.grow(3) && share.grow(2) && !share.grow(1));
        let mut ownerless = shares.begin(None);
        assert!(
            ownerless.grow(5) && !ownerless.grow(1),
            "without an owner, all that is free"
        );
        assert_eq!(shares.taken(), 10);
        drop((share, ownerless));
        assert_eq!(shares.taken(), 0);
    }
}
