//! Limits on cancelled requests, which cost the client nothing and the server work.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts a connection's cancelled requests. Each completed response offsets one of them.
///
/// The library limits requests cancelled before they are processed (CVE-2023-44487). This limits those cancelled
/// afterwards.
#[derive(Debug)]
pub(super) struct Cancellations {
    count: AtomicU32,
    max: u32,
}

impl Cancellations {
    /// Starts at zero, with a limit of `max`.
    pub(super) fn new(max: u32) -> Self {
        Self { count: AtomicU32::new(0), max }
    }

    /// Records a cancelled request.
    pub(super) fn cancelled(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Records a completed response.
    pub(super) fn completed(&self) {
        if self.count.load(Relaxed) > 0 {
            // An error means that another response was faster.
            let _ = self.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Returns `true` if the client cancels too many requests to be worth serving.
    pub(super) fn exceeded(&self) -> bool {
        self.count.load(Relaxed) > self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_responses_offset_cancellations() {
        let cancellations = Cancellations::new(2);
        cancellations.completed();
        for _ in 0..100 {
            cancellations.cancelled();
            cancellations.cancelled();
            assert!(!cancellations.exceeded());
            cancellations.completed();
            cancellations.completed();
        }
        (0..3).for_each(|_| cancellations.cancelled());
        assert!(cancellations.exceeded());
        cancellations.completed();
        assert!(!cancellations.exceeded());
    }
}
