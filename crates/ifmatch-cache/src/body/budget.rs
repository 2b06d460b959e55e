//! A memory budget that many bodies share: those still arriving, or those kept for their readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that aren't reserved. Clones share one budget.
///
/// Short bodies may use all of it. Longer ones must leave a share, so any number of stalled long bodies leaves room
/// for short ones.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget {
    left: Arc<AtomicU64>,
    /// Number of bytes that longer bodies must leave free.
    spare: u64,
    /// Maximum length of a short body.
    short: u64,
}

impl ByteBudget {
    /// Creates a budget of this size for long bodies, plus a quarter of it for those of up to a 64th.
    pub(crate) fn of(bytes: u64) -> Self {
        let (spare, short) = (bytes / 4, bytes / 64);
        Self {
            left: Arc::new(AtomicU64::new(bytes.saturating_add(spare))),
            spare,
            short,
        }
    }

    /// Returns an empty reservation for a body of up to `limit` bytes.
    pub(crate) fn reserve(&self, limit: u64) -> ByteReservation {
        ByteReservation {
            budget: self.clone(),
            taken: 0,
            limit,
        }
    }
}

/// A part of the budget, released on drop.
#[derive(Debug)]
pub(crate) struct ByteReservation {
    budget: ByteBudget,
    taken: u64,
    limit: u64,
}

impl ByteReservation {
    /// Extends the reservation to `len` bytes. Returns `false` if not enough is left.
    pub(crate) fn cover(&mut self, len: u64) -> bool {
        let Some(missing) = len.checked_sub(self.taken) else {
            return true;
        };
        let must_stay = if len <= self.budget.short {
            0
        } else {
            self.budget.spare
        };
        let take = |left: u64| left.checked_sub(missing).filter(|rest| *rest >= must_stay);
        let taken = len <= self.limit
            && self
                .budget
                .left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
                .is_ok();
        self.taken = if taken { len } else { self.taken };
        taken
    }

    /// Releases all but `len` bytes.
    pub(crate) fn shrink(&mut self, len: u64) {
        let freed = self.taken.saturating_sub(len);
        self.taken -= freed;
        self.budget.left.fetch_add(freed, Ordering::AcqRel);
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_memory_can_be_reserved_again() {
        let budget = ByteBudget::of(1_000);
        let mut one = budget.reserve(800);
        assert!(
            one.cover(600) && one.cover(500) && !one.cover(801),
            "its own limit is 800"
        );
        let mut two = budget.reserve(800);
        assert!(!two.cover(401) && two.cover(400));
        one.shrink(500);
        assert!(two.cover(500) && !two.cover(501));
        drop(one);
        assert!(two.cover(800));
    }

    #[test]
    fn long_bodies_leave_room_for_short_ones() {
        let budget = ByteBudget::of(1_000);
        let mut long: Vec<ByteReservation> = (0..20).map(|_| budget.reserve(1_000)).collect();
        for len in (100..=1_000).step_by(100) {
            for reserved in &mut long {
                reserved.cover(len);
            }
        }
        assert_eq!(
            long.iter().map(|reserved| reserved.taken).sum::<u64>(),
            1_000
        );
        assert!(budget.reserve(1_000).cover(15) && !budget.reserve(1_000).cover(16));
    }
}
