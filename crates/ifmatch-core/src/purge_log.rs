//! The log of purges that several caches share: which responses a node may serve, and when a purge applies to all
//! nodes.
//!
//! The log is a chain of segments, which never change, and a [`Head`] that names the last one. A purge is acknowledged once
//! no node can serve a response that it concerns:
//!
//! 1. The purge is appended: its segment is created, then the head is advanced to it.
//! 2. Each node reads the head again and again. It removes the responses that new segments concern, and then serves stored
//!    responses without validation until `bound` after the moment *before* it began to read ([`Follower::caught_up`]). A node
//!    that can't read the head validates each response.
//! 3. The purge is acknowledged a [`wait`] after the head was advanced. Any node that still serves from its store has
//!    begun to read the head since, and knows the purge.
//!
//! Nodes needn't know each other, so they come and go freely. Their clocks needn't agree, but their rates do, within
//! one percent. `ifmatch-sim` explores the protocol in every order of its steps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::date::Timestamp;

/// The head of a log.
///
/// ```
/// use ifmatch_core::purge_log::Head;
///
/// let head = Head::new(7).advanced(2).advanced(2).advanced(2);
/// assert_eq!((head.oldest, head.newest), (2, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    /// Random number of this log. A register that was emptied begins another one.
    pub log: u64,
    /// Number of the oldest segment that is kept.
    pub oldest: u64,
    /// Number of the newest segment, or zero.
    pub newest: u64,
}

impl Head {
    /// Returns the head of a log without segments.
    pub fn new(log: u64) -> Self {
        Self {
            log,
            oldest: 1,
            newest: 0,
        }
    }

    /// Returns the head after a segment was appended, of which the last `retained` are kept.
    #[must_use]
    pub fn advanced(self, retained: u64) -> Self {
        let newest = self.newest + 1;
        Self {
            newest,
            oldest: self.oldest.max((newest + 1).saturating_sub(retained)),
            ..self
        }
    }
}

/// The progress of a node through a log.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::purge_log::{Follower, Head, Missing, wait};
///
/// let (now, bound) = (Timestamp::from_micros(5_000_000), Duration::from_secs(2));
/// let mut follower = Follower::start(Head::new(7), 0);
/// let head = Head::new(7).advanced(100);
/// assert_eq!(follower.missing(head, 0), Missing::Segments { after: 0 });
/// assert_eq!(follower.caught_up(head, 0, now, bound), now.saturating_add(bound));
/// assert_eq!(follower.missing(head, 0), Missing::Nothing);
/// assert!(wait(bound) > bound);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Follower {
    log: u64,
    epoch: u64,
    position: u64,
}

/// The purges that a node hasn't carried out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None.
    Nothing,
    /// Those in the segments after this one, up to the newest.
    Segments {
        /// Number of the last segment that was carried out.
        after: u64,
    },
    /// They are no longer in the log: every response counts as purged.
    Everything,
}

impl Follower {
    /// Creates a follower for a node that holds no responses from before it read this head, in this epoch of the
    /// register.
    pub fn start(head: Head, epoch: u64) -> Self {
        Self {
            log: head.log,
            epoch,
            position: head.newest,
        }
    }

    /// Returns the number of the last segment that was carried out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the purges that are missing according to a head. In another epoch, the register may have lost segments.
    pub fn missing(&self, head: Head, epoch: u64) -> Missing {
        let is_same = self.log == head.log && self.epoch == epoch;
        if !is_same || head.newest < self.position || head.oldest > self.position + 1 {
            return Missing::Everything;
        }
        if head.newest == self.position {
            Missing::Nothing
        } else {
            Missing::Segments {
                after: self.position,
            }
        }
    }

    /// Records that all purges up to this head were carried out. The load of the head began at `began`. Returns the
    /// time until which stored responses may be served without validation, by the same clock.
    #[must_use]
    pub fn caught_up(
        &mut self,
        head: Head,
        epoch: u64,
        began: Timestamp,
        bound: Duration,
    ) -> Timestamp {
        *self = Self::start(head, epoch);
        began.saturating_add(bound)
    }
}

/// Returns the time from an append to its acknowledgement: the bound plus 1/32 of it, since clocks may run one percent
/// too slow or too fast.
pub fn wait(bound: Duration) -> Duration {
    bound.saturating_add(bound / 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_another_log_make_everything_missing() {
        let head = |newest: u64| (0..newest).fold(Head::new(1), |head, _| head.advanced(3));
        let follower = Follower::start(head(4), 0);
        for (head, epoch, missing) in [
            (head(4), 0, Missing::Nothing),
            (head(7), 0, Missing::Segments { after: 4 }),
            (head(8), 0, Missing::Everything),
            (head(3), 0, Missing::Everything),
            (head(5), 1, Missing::Everything),
            (Head { log: 2, ..head(4) }, 0, Missing::Everything),
        ] {
            assert_eq!(
                follower.missing(head, epoch),
                missing,
                "{head:?} in epoch {epoch}"
            );
        }
    }

    #[test]
    fn the_wait_covers_clocks_that_differ_by_two_percent() {
        let bound = Duration::from_secs(2);
        let slow_node = bound.mul_f64(1.0 / 0.99);
        let fast_purger = wait(bound).mul_f64(1.0 / 1.01);
        assert!(fast_purger > slow_node, "{fast_purger:?} {slow_node:?}");
    }
}
