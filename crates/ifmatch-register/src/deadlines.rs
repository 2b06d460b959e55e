//! Tracks when this process first saw deadlines written by a clock ahead of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Overlong, Record};

use crate::key::Key;

/// Maximum number of deadlines tracked.
const MAX_TRACKED: usize = 1_024;

/// Deadlines, each with its end by this process's clock.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(Mutex<HashMap<(Key, Overlong), End>>);

/// The end of a deadline: the time that was granted, after the deadline was first seen.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Timestamp,
    granted: Duration,
}

impl Deadlines {
    /// Returns the record without the deadlines that this process has seen unchanged, by its own clock, for as long as they
    /// were granted.
    pub(crate) fn view(
        &self,
        key: &Key,
        mut record: Record,
        now: Timestamp,
        own: Timestamp,
    ) -> Record {
        let overlong: Vec<_> = record.overlong(now).collect();
        for (overlong, granted) in overlong {
            if self.has_ended(key, overlong, granted, own) {
                record = record.without_overlong(overlong, now);
            }
        }
        record
    }

    /// Without space for another deadline, this one counts as new until those before it have ended. They stay for as long
    /// again, so their resources can be written.
    fn has_ended(&self, key: &Key, overlong: Overlong, granted: Duration, own: Timestamp) -> bool {
        let mut tracked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = (key.clone(), overlong);
        if let Some(end) = tracked.get(&deadline) {
            return end.at <= own;
        }
        if tracked.len() >= MAX_TRACKED {
            tracked.retain(|_, end| own < end.at.saturating_add(end.granted));
        }
        if tracked.len() < MAX_TRACKED {
            tracked.insert(
                deadline,
                End {
                    at: own.saturating_add(granted),
                    granted,
                },
            );
        }
        granted.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use ifmatch_core::command::{Begin, Command};
    use ifmatch_core::precondition::Preconditions;

    use super::*;

    const GRANTED: Duration = Duration::from_secs(30);
    const AHEAD: Duration = Duration::from_hours(24);

    /// Before it was set back, a clock that was a day ahead has granted twice as many permits as deadlines are tracked. Their
    /// resources are requested in turn, again and again. Each is free after the time that was granted, although none can be
    /// tracked for all that time if new ones displace it.
    #[test]
    fn deadlines_beyond_the_number_tracked_end_in_turn() {
        let start = Timestamp::from_micros(1_000_000_000);
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, 7, GRANTED);
        let granted = Record::absent()
            .apply(&Command::Begin(begin), start.saturating_add(AHEAD))
            .next;
        let granted = granted.expect("a permit");
        let mut waiting: Vec<Key> = (0..2 * MAX_TRACKED)
            .map(|number| Key::new(format!("key {number}")).expect("a key"))
            .collect();
        let (deadlines, mut own) = (Deadlines::default(), start);
        let mut rounds = 0;
        while !waiting.is_empty() {
            let in_flight = |key: &Key| {
                deadlines
                    .view(key, granted.clone(), own, own)
                    .permit(own)
                    .is_some()
            };
            waiting.retain(in_flight);
            assert!(
                own >= start.saturating_add(GRANTED) || waiting.len() == 2 * MAX_TRACKED,
                "one has ended early"
            );
            own = own.saturating_add(GRANTED / 10);
            rounds += 1;
            assert!(rounds < 100, "{} never end", waiting.len());
        }
    }
}
