//! The memory that bodies on their way may take, all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that are not taken. Clones are the same budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    pub(crate) fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Nothing yet, to be [grown](Reserved::grow) up to `limit`.
    pub(crate) fn reserve(&self, limit: u64) -> Reserved {
        Reserved { budget: self.clone(), taken: 0, limit }
    }
}

/// A share of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    budget: Budget,
    taken: u64,
    limit: u64,
}

impl Reserved {
    /// Takes more. False: there is not so much left.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let within = self.taken.checked_add(bytes).is_some_and(|sum| sum <= self.limit);
        let take = |left: u64| left.checked_sub(bytes);
        let taken = within && self.budget.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        self.taken += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::of(10);
        let mut one = budget.reserve(8);
        assert!(one.grow(6) && !one.grow(3), "its own limit is 8");
        let mut two = budget.reserve(8);
        assert!(!two.grow(5) && two.grow(4) && !two.grow(1));
        drop(one);
        assert!(two.grow(4));
    }
}
