//! How long an object keeps its record.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;

use super::wire::Kept;

/// How long a record is kept after its last change, at the least: it gives late retries of that change their answer.
const RETENTION: Duration = Duration::from_hours(24);
/// When an object looks at its record after a change. A little later than the record is old.
pub(super) const LOOK: Duration = Duration::from_hours(25);

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is forgotten now.
    Forgotten,
    /// It may be forgotten later, without being changed.
    LookAgain,
    /// It stays until it is changed.
    Stays,
}

/// What becomes of a record that is not changed.
pub(super) fn fate(record: &Record, kept: Kept, now: Timestamp) -> Fate {
    let is_kept = match kept {
        Kept::Always => true,
        Kept::WhileBusy => false,
        Kept::WhilePresent => record.state(now).version().is_some(),
    };
    let has_lease_without_end = record.lease().is_some_and(|lease| lease.end().is_none());
    if record.permit(now).is_none() && (is_kept || has_lease_without_end) {
        return Fate::Stays;
    }
    let is_old = record.revision().timestamp().saturating_add(RETENTION) < now;
    if is_old && record.is_idle(now) { Fate::Forgotten } else { Fate::LookAgain }
}
