//! Retention of records.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;

use super::wire::Kept;

/// Minimum time to keep a record after its last change, so that late retries of that change get its answer.
const RETENTION: Duration = Duration::from_hours(24);
/// Time from a change until the object checks its record, a little longer than the retention.
pub(super) const LOOK: Duration = Duration::from_hours(25);

/// Outcome of a retention check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Delete the record now.
    Forgotten,
    /// Check again later, since the record may expire without a change.
    LookAgain,
    /// Keep the record until it changes.
    Stays,
}

/// Decides the fate of an unchanged record.
pub(super) fn fate(record: &Record, kept: Kept, now: Timestamp) -> Fate {
    let has_lease_without_end = record.lease().is_some_and(|lease| lease.end().is_none());
    if record.permit(now).is_none() && (kept == Kept::Always || has_lease_without_end) {
        return Fate::Stays;
    }
    let is_old = record.revision().timestamp().saturating_add(RETENTION) < now;
    if is_old && record.is_idle(now) { Fate::Forgotten } else { Fate::LookAgain }
}
