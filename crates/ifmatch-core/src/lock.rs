//! The decisions of a lock kept in one resource with a strong entity tag, and changed by compare-and-swap.
//!
//! The holder renews the lock by writing the record again, so the resource gets a new version. A challenger takes over
//! after it has seen the same version for its full time to live on its own clock. The clocks of holder and challenger
//! needn't agree on the time of day, only on the length of a second, to within a tenth.
//!
//! ```text
//!   holder       renewal sent     local deadline
//!                     │◀──── ttl − margin ────▶│
//!                ─────┼────┬──────────────────┼─────────────────
//!   resource               new version
//!                ──────────┬──┬──────────────────────────┬──────
//!   challenger                first seen                  takes over
//!                             │◀────────── ttl ─────────▶│
//! ```
//!
//! The challenger sees a version after its renewal was sent, so the holder's deadline passes first, by the
//! [margin].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::date::Timestamp;

/// Shortest time to live: the margin takes a second of it, and a renewal needs the time to arrive.
pub const MIN_TTL: Duration = Duration::from_secs(3);

/// Least margin between a holder's local deadline and the end of its time to live.
const MIN_MARGIN: Duration = Duration::from_secs(1);

/// The content of a lock's resource.
///
/// It is never deleted, so the fencing token only grows. Each write of it must result in a new version, even if the
/// store's tags are hashes of the bytes: the caller adds a random number to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRecord {
    /// Label of the holder, for operators.
    pub holder: String,
    /// Fencing token: larger for each new holder.
    pub fence: u64,
    /// Time to live of the version, in milliseconds.
    pub ttl_ms: u64,
    /// `false` after a release.
    pub held: bool,
}

impl LockRecord {
    /// Returns the record of a new holder, with a larger fencing token.
    ///
    /// `now` is the time of day. The first token is taken from it, so tokens keep growing if an operator deletes the
    /// resource.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ifmatch_core::date::Timestamp;
    /// use ifmatch_core::lock::LockRecord;
    ///
    /// let now = Timestamp::from_micros(1_000);
    /// let first = LockRecord::taken(None, "a", Duration::from_secs(30), now);
    /// let second = LockRecord::taken(Some(&first), "b", Duration::from_secs(30), now);
    /// assert!(second.fence > first.fence);
    /// ```
    #[must_use]
    pub fn taken(previous: Option<&Self>, holder: &str, ttl: Duration, now: Timestamp) -> Self {
        let fence = previous.map_or(now.micros().max(1), |previous| {
            previous.fence.saturating_add(1)
        });
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self {
            holder: holder.to_owned(),
            fence,
            ttl_ms,
            held: true,
        }
    }

    /// Returns the record after a release.
    #[must_use]
    pub fn released(&self) -> Self {
        Self {
            held: false,
            ..self.clone()
        }
    }

    /// Returns the record with another time to live, from its next version on.
    #[must_use]
    pub fn lasting(&self, ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self {
            ttl_ms,
            ..self.clone()
        }
    }

    /// Returns the time to live.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// The version that a challenger sees, and since when, on its own clock.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::lock::{Challenge, LockRecord, Observation};
///
/// let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
/// let record = LockRecord::taken(None, "a", Duration::from_secs(30), at(0));
/// let mut seen = Observation::default();
/// assert_eq!(seen.challenge(&record, "v1", at(10)), Challenge::Wait { until: at(40) });
/// // A renewal: another version.
/// assert_eq!(seen.challenge(&record, "v2", at(20)), Challenge::Wait { until: at(50) });
/// assert_eq!(seen.challenge(&record, "v2", at(50)), Challenge::TakeOver);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observation<V>(Option<(V, Timestamp)>);

/// The next step of a challenger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// Replace the version that was seen, on the condition that it is still current.
    TakeOver,
    /// Wait, and read again at this time at the latest.
    Wait {
        /// The end of the version's time to live on the challenger's clock.
        until: Timestamp,
    },
}

impl<V> Default for Observation<V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<V: PartialEq> Observation<V> {
    /// Returns the next step of a challenger that has read this version. `now` is its interval clock *after* the read.
    pub fn challenge(&mut self, record: &LockRecord, version: V, now: Timestamp) -> Challenge {
        let since = match &self.0 {
            Some((seen, since)) if *seen == version => *since,
            _ => now,
        };
        self.0 = Some((version, since));
        let until = since.saturating_add(record.ttl());
        if !record.held || until <= now {
            Challenge::TakeOver
        } else {
            Challenge::Wait { until }
        }
    }
}

/// Returns how long before the end of a version's time to live its holder must stop working: a tenth of that time, and
/// at least a second.
///
/// ```
/// # use std::time::Duration;
/// # use ifmatch_core::lock::margin;
/// assert_eq!(margin(Duration::from_secs(60)), Duration::from_secs(6));
/// assert_eq!(margin(Duration::from_secs(3)), Duration::from_secs(1));
/// ```
pub fn margin(ttl: Duration) -> Duration {
    (ttl / 10).max(MIN_MARGIN)
}

/// Returns a holder's local deadline, from the time *before* it sent its latest successful write.
///
/// ```
/// # use std::time::Duration;
/// # use ifmatch_core::date::Timestamp;
/// # use ifmatch_core::lock::deadline;
/// let sent = Timestamp::from_micros(5_000_000);
/// assert_eq!(deadline(sent, Duration::from_secs(30)), Timestamp::from_micros(32_000_000));
/// ```
pub fn deadline(sent: Timestamp, ttl: Duration) -> Timestamp {
    sent.saturating_add(ttl.saturating_sub(margin(ttl)))
}

/// Returns the time of the next renewal.
///
/// ```
/// # use std::time::Duration;
/// # use ifmatch_core::date::Timestamp;
/// # use ifmatch_core::lock::renewal;
/// let sent = Timestamp::from_micros(0);
/// assert_eq!(renewal(sent, Duration::from_secs(30)), Timestamp::from_micros(10_000_000));
/// ```
pub fn renewal(sent: Timestamp, ttl: Duration) -> Timestamp {
    sent.saturating_add(ttl / 3)
}
