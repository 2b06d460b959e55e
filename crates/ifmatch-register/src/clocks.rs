//! Other clocks: bounds of an engine's time, and processes with clocks that are ahead.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};

use crate::key::Key;

/// Permitted error of the rates of the clocks, in parts per million: for a clock without NTP, and for one that is slewed.
const RATE_ERROR: u64 = 500;
/// Maximum age of the last sample. Later, the latest time is unlimited.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Bounds of an engine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineTime {
    /// Never after the engine's time. Goes back only if the engine's time does.
    pub earliest: Timestamp,
    /// Never before the engine's time.
    pub latest: Timestamp,
}

impl EngineTime {
    /// Returns the difference between the bounds.
    pub fn error(self) -> Duration {
        self.earliest.until(self.latest)
    }
}

/// An engine's clock.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_register::EngineClock;
///
/// let (clock, at) = (EngineClock::default(), Timestamp::from_micros);
/// clock.sample(at(1_000), at(1_400), at(9_000_000));
/// let time = clock.time(at(1_400)).expect("there is a sample");
/// assert_eq!((time.earliest, time.latest), (at(9_000_000), at(9_000_401)));
/// ```
#[derive(Debug, Default)]
pub struct EngineClock(Mutex<Option<Bounds>>);

/// Bounds at a moment of this process's interval clock.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    at: Timestamp,
    sampled: Timestamp,
    time: EngineTime,
}

impl EngineClock {
    /// Takes note of a sample that was requested at `sent`, and arrived at `received`, by this process's interval clock.
    ///
    /// A sample that contradicts earlier ones takes their place: the engine's clock was set, or another server has taken
    /// over.
    pub fn sample(&self, sent: Timestamp, received: Timestamp, engine: Timestamp) {
        let round_trip = sent.until(received);
        let latest = engine.saturating_add(round_trip + rate_error(round_trip));
        let new = Bounds {
            at: received,
            sampled: received,
            time: EngineTime {
                earliest: engine,
                latest,
            },
        };
        let mut bounds = self.bounds();
        *bounds = Some(bounds.and_then(|old| old.narrowed_by(new)).unwrap_or(new));
    }

    /// Returns the engine's time at a moment of this process's interval clock, or `None` without a sample. A minute after
    /// the last one, `latest` is unlimited.
    pub fn time(&self, now: Timestamp) -> Option<EngineTime> {
        let bounds = (*self.bounds())?;
        let mut time = bounds.moved_to(now.max(bounds.at)).time;
        if bounds.sampled.until(now) > MAX_AGE {
            time.latest = Timestamp::from_micros(u64::MAX);
        }
        Some(time)
    }

    fn bounds(&self) -> MutexGuard<'_, Option<Bounds>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bounds {
    fn moved_to(self, at: Timestamp) -> Self {
        let elapsed = self.at.until(at);
        let error = rate_error(elapsed);
        let time = EngineTime {
            earliest: self
                .time
                .earliest
                .saturating_add(elapsed.saturating_sub(error)),
            latest: self.time.latest.saturating_add(elapsed + error),
        };
        Self { at, time, ..self }
    }

    /// Returns the bounds that satisfy both, or `None` if there are none.
    fn narrowed_by(self, other: Self) -> Option<Self> {
        let at = self.at.max(other.at);
        let (one, two) = (self.moved_to(at).time, other.moved_to(at).time);
        let time = EngineTime {
            earliest: one.earliest.max(two.earliest),
            latest: one.latest.min(two.latest),
        };
        let sampled = self.sampled.max(other.sampled);
        (time.earliest <= time.latest).then_some(Self { at, sampled, time })
    }
}

/// Returns the error of an interval, rounded up.
fn rate_error(interval: Duration) -> Duration {
    let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros.saturating_mul(RATE_ERROR).div_ceil(1_000_000))
}

/// Time for which a revision shows that a process with another clock is running.
const EVIDENCE_TIME: Duration = Duration::from_secs(60);
/// Least growth of a revision that shows such a clock. A change by a clock behind the revision adds a microsecond, and one by a
/// clock that is ahead adds the time since the change before.
const MIN_ADVANCE: Duration = Duration::from_secs(1);
/// Largest margin of a permit. A larger difference of clocks is worth a warning.
const MAX_MARGIN: Duration = Duration::from_secs(3);
/// Maximum number of records that are remembered. If there are more, they count again.
const CAPACITY: usize = 1_024;

/// Tracks how far other processes' clocks are ahead of this one's.
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

/// What records have shown of other clocks.
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
    "the clock of another process that shares the register is, or was, {} s ahead of this one's. Writes are refused for a minute. \
     Set the clocks of all machines (NTP), then restart the processes whose clocks were wrong",
    .0.as_secs()
)]
pub struct ClockAhead(Duration);

impl PeerClocks {
    /// Takes note of a record in the register, at a moment of this process's interval clock. Returns a warning to be
    /// logged, if it is the first one in a minute.
    #[must_use]
    pub fn saw(&self, key: &Key, record: &Record, now: Timestamp) -> Option<ClockAhead> {
        let revision = record.revision();
        let ahead = now.until(revision.timestamp());
        if ahead.is_zero() {
            return None;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |before: &Revision| before.timestamp().until(revision.timestamp()) > MIN_ADVANCE;
        if !seen.revisions.get(key).is_none_or(is_new) {
            return None;
        }
        if seen.revisions.len() >= CAPACITY {
            seen.revisions.clear();
        }
        seen.revisions.insert(key.clone(), revision);
        let before = seen
            .ahead
            .filter(|(_, end)| now < *end)
            .map_or(Duration::ZERO, |(ahead, _)| ahead);
        seen.ahead = Some((ahead.max(before), now.saturating_add(EVIDENCE_TIME)));
        (ahead > MAX_MARGIN && before <= MAX_MARGIN).then_some(ClockAhead(ahead))
    }

    /// Returns the bounds of the time of all processes: this one's, and the latest that another one may have. Returns `None`
    /// if none is known to be ahead.
    pub fn time(&self, now: Timestamp) -> Option<EngineTime> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ahead, _) = seen.ahead.filter(|(_, end)| now < *end)?;
        Some(EngineTime {
            earliest: now,
            latest: now.saturating_add(ahead),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000_000;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// The engine's clock is ahead of this process's by this much.
    const AHEAD: u64 = 30_000_000;

    /// All orders in which the responses of four requests arrive, with the engine's clock at all rates that are
    /// permitted: the engine's time is never outside the bounds.
    #[test]
    fn the_bounds_hold_in_every_order_of_the_answers() {
        let requests = [
            (0, 400_u64, 2_000),
            (500, 500, 900),
            (700, 2_500, 2_600),
            (3_000, 3_001, 9_000),
        ];
        for rate in [-500_i64, 0, 500] {
            let engine = |local: u64| {
                let drift = i64::try_from(local).unwrap() * rate / 1_000_000;
                at((START + local + AHEAD).strict_add_signed(drift))
            };
            for order in permutations(&[0, 1, 2, 3]) {
                let clock = EngineClock::default();
                for request in order {
                    let (sent, read, received) = requests[request];
                    clock.sample(at(START + sent), at(START + received), engine(read));
                    for now in [received.max(9_000), 20_000, 1_000_000, 50_000_000] {
                        let bounds = clock.bounds().unwrap().moved_to(at(START + now)).time;
                        // A microsecond for the rounding of the drift.
                        let (low, high) = (engine(now).micros() + 1, engine(now).micros() - 1);
                        assert!(
                            bounds.earliest.micros() <= low && high <= bounds.latest.micros(),
                            "{bounds:?} {now}"
                        );
                    }
                }
            }
        }
    }

    fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
        if of.is_empty() {
            return vec![vec![]];
        }
        let rest = |first: usize| {
            of.iter()
                .copied()
                .filter(|other| *other != first)
                .collect::<Vec<_>>()
        };
        let with = |first: usize| {
            permutations(&rest(first))
                .into_iter()
                .map(move |tail| [vec![first], tail].concat())
                .collect::<Vec<_>>()
        };
        of.iter().flat_map(|first| with(*first)).collect()
    }

    #[test]
    fn a_quick_sample_narrows_the_bounds_and_a_slow_one_does_not_widen_them() {
        let clock = EngineClock::default();
        clock.sample(at(START), at(START + 1_000_000), at(START + 500_000));
        assert!(clock.time(at(START + 1_000_000)).unwrap().error() >= Duration::from_secs(1));
        clock.sample(
            at(START + 1_000_000),
            at(START + 1_000_200),
            at(START + 1_000_100),
        );
        clock.sample(
            at(START + 1_000_200),
            at(START + 3_000_200),
            at(START + 2_000_000),
        );
        let error = clock.time(at(START + 3_000_200)).unwrap().error();
        assert!(error < Duration::from_millis(3), "{error:?}");
    }

    /// The new primary's clock is behind the old one's. Other processes know only the new one.
    #[test]
    fn the_time_goes_back_with_the_engines() {
        let clock = EngineClock::default();
        clock.sample(at(START), at(START + 100), at(START + AHEAD));
        let before = clock.time(at(START + 100)).unwrap();
        clock.sample(at(START + 1_000), at(START + 1_100), at(START + 1_050));
        let after = clock.time(at(START + 1_100)).unwrap();
        assert_eq!(
            (after.earliest, before.earliest),
            (at(START + 1_050), at(START + AHEAD))
        );
    }

    #[test]
    fn the_time_is_unknown_a_minute_after_the_last_sample() {
        let clock = EngineClock::default();
        assert_eq!(clock.time(at(START)), None);
        clock.sample(at(START), at(START + 100), at(START));
        assert!(clock.time(at(START + 59_000_000)).unwrap().error() < Duration::from_millis(100));
        assert!(clock.time(at(START + 61_000_000)).unwrap().error() > Duration::from_hours(1));
    }

    #[test]
    fn only_a_record_that_a_running_clock_wrote_counts_again() {
        let clocks = PeerClocks::default();
        let key = Key::new("key").expect("a key");
        let seconds = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let error = |now| clocks.time(now).map(EngineTime::error);
        let saw = |at: Timestamp, micros: u64, now| {
            clocks
                .saw(
                    &key,
                    &Record::forgotten(Revision::new(at.micros() + micros)),
                    now,
                )
                .is_some()
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
        assert_eq!(
            error(seconds(10_060)),
            Some(Duration::from_hours(1)),
            "its clock runs"
        );
    }
}
