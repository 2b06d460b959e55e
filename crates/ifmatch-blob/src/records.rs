//! For stores that keep records in a register: pages of records, their retention, and outcomes as the store's results.

use std::time::Duration;

use ifmatch_core::command::{Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Version};
use ifmatch_register::{
    Applied, DriverError, Key, Register, RegisterError, RegisterErrorKind, Scan,
};

use crate::store::{Leased, StoreError, StoreErrorKind};

/// Maximum number of records per page.
const PAGE: usize = 1_000;

/// Minimum time that a record is kept after its last change, so late retries of the change get its response.
const RETENTION: Duration = Duration::from_hours(24);

/// Returns the next records with keys that begin with `prefix`, or `None` after the last one.
///
/// # Errors
/// Same as [`Register::scan`].
pub async fn next_page(
    register: &dyn Register,
    prefix: &str,
    after: &mut Option<Key>,
) -> Result<Option<Vec<(Key, Record)>>, RegisterError> {
    let scan = Scan {
        prefix,
        after: after.as_ref().map(Key::as_str),
        limit: PAGE,
    };
    let records = register.scan(&scan).await?;
    *after = records.last().map(|(key, _)| key.clone());
    Ok(Some(records).filter(|records| !records.is_empty()))
}

/// Returns `true` if the last change is too old for a retry.
pub fn is_past_retention(record: &Record, now: Timestamp) -> bool {
    record.revision().timestamp().saturating_add(RETENTION) < now
}

/// Returns a random number for a command.
///
/// # Errors
/// [`StoreErrorKind::Unavailable`] if the platform provides no randomness.
pub fn nonce() -> Result<u64, StoreError> {
    ifmatch_runtime::nonce().map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))
}

/// Converts a failure of the register.
pub fn of_register(error: RegisterError) -> StoreError {
    let kind = match error.kind() {
        RegisterErrorKind::Ambiguous => StoreErrorKind::OutcomeUnknown,
        RegisterErrorKind::Full => StoreErrorKind::Full,
        RegisterErrorKind::Unreadable => StoreErrorKind::Unreadable,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, error)
}

/// Converts a failure of the driver.
pub fn of_driver(error: DriverError) -> StoreError {
    match error {
        DriverError::Register(error) => of_register(error),
        contention => StoreError::new(StoreErrorKind::Unavailable, contention),
    }
}

/// Converts the outcome of a command that wasn't carried out.
pub fn refused(outcome: Outcome, now: Timestamp) -> StoreError {
    match outcome {
        Outcome::Refused(Refusal::PreconditionFailed {
            precondition,
            current,
        }) => StoreErrorKind::PreconditionFailed {
            precondition,
            current,
        }
        .into(),
        Outcome::Refused(Refusal::InFlight { deadline }) => StoreErrorKind::InFlight {
            retry_after: now.until(deadline),
        }
        .into(),
        Outcome::Refused(Refusal::NotFound) => StoreErrorKind::NotFound.into(),
        Outcome::Refused(Refusal::Lease(failure)) => StoreErrorKind::LeaseFailed(failure).into(),
        Outcome::Refused(Refusal::LeaseConflict(conflict)) => {
            StoreErrorKind::LeaseConflict(conflict).into()
        }
        other => StoreError::new(
            StoreErrorKind::Unavailable,
            format!("the register did not carry it out: {other:?}"),
        ),
    }
}

/// Converts the outcome of a lease operation on a record with a known version.
///
/// # Errors
/// Same as [`refused`].
pub fn leased(applied: Applied, now: Timestamp) -> Result<Leased, StoreError> {
    let Outcome::Leased(receipt) = applied.outcome else {
        return Err(refused(applied.outcome, now));
    };
    // A retried release gets its first response even if the blob has been deleted since.
    let version = applied.after.state(now).version();
    Ok(Leased {
        receipt,
        tag: version.and_then(|version| version.tags().first().cloned()),
        last_modified: version.map_or_else(|| receipt.at.last_modified(), Version::last_modified),
    })
}
