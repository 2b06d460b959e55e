//! [`Revision`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::date::Timestamp;

/// The revision of a record. It grows with every change and is never used twice.
///
/// A revision is `max(previous + 1, microseconds of now)`. So it stays unique even if the record of a deleted
/// resource is evicted after a while, unless the clock goes back that far.
///
/// ```
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::record::Revision;
///
/// let first = Revision::NONE.next(Timestamp::from_micros(1_000));
/// assert_eq!(first.get(), 1_000);
/// assert_eq!(first.next(Timestamp::from_micros(5)).get(), 1_001); // a clock that went back
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a record that was never written.
    pub const NONE: Self = Self(0);

    /// Creates a revision from the number that a register stores with the record.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the revision of a change made at `now`.
    #[must_use]
    pub fn next(self, now: Timestamp) -> Self {
        Self(now.micros().max(self.0.saturating_add(1)))
    }

    /// Returns the time of the change. It is late if several changes were made in one microsecond, or the clock has gone back.
    pub const fn timestamp(self) -> Timestamp {
        Timestamp::from_micros(self.0)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
