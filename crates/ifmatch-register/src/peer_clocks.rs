//! The clocks of the processes that share a register whose engine provides no time.
//!
//! Such processes compare deadlines by their own clocks. A revision is the time of its change, so a record shows that the
//! clock of its writer is ahead:
//!
//! ```text
//!   this process, 12:00      register                      another process, 13:00
//!                            n: revision 13:00:00  ◀────── writes n
//!   loads n: ahead by an hour, so a permit until 12:01 would be no obstacle to it
//! ```
//!
//! Such a revision can also be left over from a clock that was set since. It counts for a minute, and again only if a record
//! advances by more than its changes account for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};

use crate::engine_clock::EngineTime;
use crate::key::Key;

/// Time for which a revision shows that a process with another clock is running.
const COUNTS: Duration = Duration::from_secs(60);
/// A change in the past of its record's revision adds a microsecond, and one by a clock that is ahead the time since.
const ADVANCE: Duration = Duration::from_secs(1);
/// Difference of clocks that is worth a warning: no permit has a larger margin.
const NOTABLE: Duration = Duration::from_secs(3);
/// Maximum number of records that are remembered. If there are more, they count again.
const CAPACITY: usize = 1_024;

/// The clocks of other processes, as far as they are ahead of this one's.
///
/// ```
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::record::{Record, Revision};
/// use ifmatch_register::{Key, PeerClocks};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (clocks, now) = (PeerClocks::default(), Timestamp::from_micros(1_000_000));
/// assert_eq!(clocks.time(now), None);
/// let warning = clocks.saw(&Key::new("note")?, &Record::forgotten(Revision::new(5_000_000)), now);
/// assert!(warning.is_some());
/// assert_eq!(clocks.time(now).map(|time| time.error().as_secs()), Some(4));
/// # Ok(())
/// # }
/// # run().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct PeerClocks(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Revisions that were ahead, by their keys.
    revisions: HashMap<Key, Revision>,
    /// The largest difference in the last minute, and the end of that minute.
    ahead: Option<(Duration, Timestamp)>,
}

/// The clock of another process is further ahead than the margin of any permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock of another process that shares the register is, or was, {} s ahead of this one's: writes are refused for a minute; \
     set the clocks of all machines (NTP), then restart the processes whose clocks were wrong",
    .0.as_secs()
)]
pub struct ClockAhead(Duration);

impl PeerClocks {
    /// Takes note of a record in the register, at a moment of this process's interval clock. Returns a warning to be logged, if
    /// it is the first one for a minute.
    #[must_use]
    pub fn saw(&self, key: &Key, record: &Record, now: Timestamp) -> Option<ClockAhead> {
        let revision = record.revision();
        let ahead = now.until(revision.timestamp());
        if ahead.is_zero() {
            return None;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |before: &Revision| before.timestamp().until(revision.timestamp()) > ADVANCE;
        if !seen.revisions.get(key).is_none_or(is_new) {
            return None;
        }
        if seen.revisions.len() >= CAPACITY {
            seen.revisions.clear();
        }
        seen.revisions.insert(key.clone(), revision);
        let before = seen.ahead.filter(|(_, end)| now < *end).map_or(Duration::ZERO, |(ahead, _)| ahead);
        seen.ahead = Some((ahead.max(before), now.saturating_add(COUNTS)));
        (ahead > NOTABLE && before <= NOTABLE).then_some(ClockAhead(ahead))
    }

    /// Returns the bounds of the time of all processes: this one's, and the latest that another one may have. Returns `None`
    /// if none is known to be ahead.
    pub fn time(&self, now: Timestamp) -> Option<EngineTime> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ahead, _) = seen.ahead.filter(|(_, end)| now < *end)?;
        Some(EngineTime { earliest: now, latest: now.saturating_add(ahead) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_that_a_running_clock_wrote_counts_again() {
        let clocks = PeerClocks::default();
        let key = Key::new("key").expect("a key");
        let seconds = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let error = |now| clocks.time(now).map(EngineTime::error);
        let saw = |at: Timestamp, micros: u64, now| {
            clocks.saw(&key, &Record::forgotten(Revision::new(at.micros() + micros)), now).is_some()
        };
        assert!(!saw(seconds(9_999), 0, seconds(10_000)));
        assert_eq!(error(seconds(10_000)), None, "it is in the past");
        assert!(saw(seconds(13_600), 0, seconds(10_000)));
        assert_eq!(error(seconds(10_059)), Some(Duration::from_hours(1)));
        assert_eq!(error(seconds(10_060)), None, "it may be left over");
        // Changes by clocks that are right add a microsecond each.
        assert!(!saw(seconds(13_600), 1_000, seconds(10_060)));
        assert_eq!(error(seconds(10_060)), None);
        assert!(saw(seconds(13_660), 0, seconds(10_060)));
        assert_eq!(error(seconds(10_060)), Some(Duration::from_hours(1)), "its clock runs");
    }
}
