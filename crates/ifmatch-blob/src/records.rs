//! The records of a register: all of them, step by step, and which are old enough to be forgotten.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, Register, RegisterError, Scan};

/// The most records looked at in one step.
const STEP: usize = 1_000;

/// How long a record is kept after its last change, at the least: it gives late retries of that change their answer.
const RETENTION: Duration = Duration::from_hours(24);

/// The next records whose keys begin with `prefix`. None: there are no more.
pub async fn step(
    register: &impl Register,
    prefix: &str,
    after: &mut Option<Key>,
) -> Result<Option<Vec<(Key, Record)>>, RegisterError> {
    let scan = Scan { prefix, after: after.as_ref().map(Key::as_str), limit: STEP };
    let records = register.scan(&scan).await?;
    *after = records.last().map(|(key, _)| key.clone());
    Ok(Some(records).filter(|records| !records.is_empty()))
}

/// Whether the last change was so long ago that nobody retries it any more.
pub fn is_old(record: &Record, now: Timestamp) -> bool {
    record.revision().timestamp().saturating_add(RETENTION) < now
}
