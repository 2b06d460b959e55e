//! Limits on cancelled requests, which cost the client nothing and the server work.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts a connection's cancelled requests. Each completed response offsets one of them.
///
/// The library limits requests cancelled before they are processed (CVE-2023-44487). This limits those cancelled
/// afterwards.
#[derive(Debug)]
pub(super) struct Recalls {
    count: AtomicU32,
    most: u32,
}

impl Recalls {
    /// Starts at zero, with a limit of `most`.
    pub(super) fn new(most: u32) -> Self {
        Self { count: AtomicU32::new(0), most }
    }

    /// Records a cancelled request.
    pub(super) fn taken_back(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Records a completed response.
    pub(super) fn answered(&self) {
        if self.count.load(Relaxed) > 0 {
            // An error means that another response was faster.
            let _ = self.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Returns `true` if the client cancels too many requests to be worth serving.
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
