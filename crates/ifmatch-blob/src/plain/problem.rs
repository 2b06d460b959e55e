//! Conversion of a store's errors into problem details.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use ifmatch_core::problem::Problem;

use crate::store::{StoreError, StoreErrorKind};

/// Retry delay after a failure of unknown duration.
const RETRY: Duration = Duration::from_secs(1);

/// Converts a store's error. Details that the client must not see go to the log.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let problem = of(&error);
        if problem.status().is_server_error() {
            error.report();
        }
        problem
    }
}

/// 404: the blob doesn't exist.
pub(super) fn no_such_blob() -> Problem {
    Problem::not_found().detail(StoreErrorKind::NotFound.to_string())
}

fn of(error: &StoreError) -> Problem {
    match error.kind() {
        StoreErrorKind::PreconditionFailed {
            precondition,
            current,
        } => Problem::precondition_failed(*precondition, current.as_ref()),
        StoreErrorKind::InFlight { retry_after } => Problem::write_in_flight(*retry_after),
        StoreErrorKind::NotFound => no_such_blob(),
        StoreErrorKind::ContainerNotFound => Problem::not_found().detail(error.to_string()),
        StoreErrorKind::ContainerExists => {
            Problem::new(StatusCode::CONFLICT, "container-exists").detail(error.to_string())
        }
        StoreErrorKind::LeaseFailed(failure) => Problem::lease_failed(*failure),
        StoreErrorKind::LeaseConflict(conflict) => Problem::lease_conflict(*conflict),
        StoreErrorKind::TooLarge { limit } => Problem::content_too_large(*limit),
        StoreErrorKind::Interrupted => bad_request("content-incomplete", error),
        StoreErrorKind::LengthMismatch => bad_request("length-mismatch", error),
        StoreErrorKind::DigestMismatch => bad_request("digest-mismatch", error),
        // No write of this dialect keeps the type or appends, and no deletion needs an empty container or keeps snapshots.
        StoreErrorKind::OtherType
        | StoreErrorKind::AppendFailed(_)
        | StoreErrorKind::ContainerNotEmpty
        | StoreErrorKind::SnapshotTaken
        | StoreErrorKind::Unsupported => bad_request("unsupported", error),
        StoreErrorKind::Full => Problem::insufficient_storage(),
        StoreErrorKind::Unavailable => Problem::unavailable(RETRY),
        StoreErrorKind::Crowded => Problem::unavailable(RETRY).detail(error.to_string()),
        StoreErrorKind::OutcomeUnknown => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown")
                .detail("the outcome of the write is unknown. GET the blob before you retry")
                .header(RETRY_AFTER, RETRY.as_secs().into())
        }
        StoreErrorKind::Unreadable => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable")
            .detail("the stored data can't be read. See the server's log"),
    }
}

fn bad_request(name: &'static str, error: &StoreError) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, name).detail(error.to_string())
}
