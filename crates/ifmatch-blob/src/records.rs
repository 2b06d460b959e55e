//! Pages through the records of a register, and tells which are past their retention.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, Register, RegisterError, Scan};

/// Maximum number of records per page.
const PAGE: usize = 1_000;

/// Minimum retention of a record after its last change, so that late retries of the change get their answer.
const RETENTION: Duration = Duration::from_hours(24);

/// Returns the next records with keys that begin with `prefix`, or `None` after the last one.
///
/// # Errors
/// As for [`Register::scan`].
pub async fn next_page(
    register: &dyn Register,
    prefix: &str,
    after: &mut Option<Key>,
) -> Result<Option<Vec<(Key, Record)>>, RegisterError> {
    let scan = Scan { prefix, after: after.as_ref().map(Key::as_str), limit: PAGE };
    let records = register.scan(&scan).await?;
    *after = records.last().map(|(key, _)| key.clone());
    Ok(Some(records).filter(|records| !records.is_empty()))
}

/// Returns `true` if the last change is too old for a retry.
pub fn is_past_retention(record: &Record, now: Timestamp) -> bool {
    record.revision().timestamp().saturating_add(RETENTION) < now
}
