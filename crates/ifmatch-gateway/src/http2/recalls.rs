//! Requests that a client takes back, which cost it nothing and us the work.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts the requests of a connection that were taken back. Each one whose answer was taken makes up for one of them.
///
/// The library bounds those that are taken back before anybody has looked at them (CVE-2023-44487); this bounds those on which
/// work has begun.
#[derive(Debug)]
pub(super) struct Recalls {
    count: AtomicU32,
    most: u32,
}

impl Recalls {
    /// None so far, and `most` at most.
    pub(super) fn new(most: u32) -> Self {
        Self { count: AtomicU32::new(0), most }
    }

    /// Notes that a request was taken back.
    pub(super) fn taken_back(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Notes that an answer was taken.
    pub(super) fn answered(&self) {
        if self.count.load(Relaxed) > 0 {
            // An error means that another answer was faster.
            let _ = self.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Whether the client takes back so much that it is not worth serving.
    pub(super) fn are_too_many(&self) -> bool {
        self.count.load(Relaxed) > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_make_up_for_what_is_taken_back() {
        let recalls = Recalls::new(2);
        recalls.answered();
        for _ in 0..100 {
            recalls.taken_back();
            recalls.taken_back();
            assert!(!recalls.are_too_many());
            recalls.answered();
            recalls.answered();
        }
        (0..3).for_each(|_| recalls.taken_back());
        assert!(recalls.are_too_many());
        recalls.answered();
        assert!(!recalls.are_too_many());
    }
}
