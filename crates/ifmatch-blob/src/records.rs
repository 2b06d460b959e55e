//! Steps through the records of a register, to find those that have expired.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, Register, RegisterError, Scan};

/// Maximum number of records per step.
const STEP: usize = 1_000;

/// Minimum retention of a record after its last change, so that late retries of the change get their answer.
const RETENTION: Duration = Duration::from_hours(24);

/// Returns the next records with keys that begin with `prefix`, or `None` after the last one.
pub async fn step(
    register: &dyn Register,
    prefix: &str,
    after: &mut Option<Key>,
) -> Result<Option<Vec<(Key, Record)>>, RegisterError> {
    let scan = Scan { prefix, after: after.as_ref().map(Key::as_str), limit: STEP };
    let records = register.scan(&scan).await?;
    *after = records.last().map(|(key, _)| key.clone());
    Ok(Some(records).filter(|records| !records.is_empty()))
}

/// Returns `true` if the last change is too old for a retry.
pub fn is_old(record: &Record, now: Timestamp) -> bool {
    record.revision().timestamp().saturating_add(RETENTION) < now
}
