//! What an object store's errors mean.

use std::error::Error as StdError;
use std::{fmt, io};

use ifmatch_core::command::{Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use object_store::Error;

use ifmatch_blob::store::{BoxError, StoreError, StoreErrorKind};

/// The store refused a write because it followed another write of the same object too soon. Nothing was changed.
///
/// A custom object store reports this as the source of an [`object_store::Error::Generic`]. The write is then retried
/// after a second instead of being reported as unknown.
///
/// ```
/// use ifmatch_blob_objects::TooSoon;
///
/// let refusal = object_store::Error::Generic { store: "R2", source: Box::new(TooSoon) };
/// assert!(refusal.to_string().contains("one write at a time"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon;

impl fmt::Display for TooSoon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store takes one write at a time of an object, and not yet this one")
    }
}

impl StdError for TooSoon {}

/// What is known of a write that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The object is no longer what it was: look again.
    Changed,
    /// The write came too soon after another one and did not take effect: wait, then retry.
    TooSoon(StoreError),
    /// The write did not take effect.
    Definite(StoreError),
    /// The write may have taken effect, or may still do so.
    Unknown(StoreError),
}

/// Why a write failed.
pub(super) fn of_write(error: Error) -> Failure {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => Failure::Changed,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::NotFound { .. } => {
            Failure::Definite(StoreError::new(StoreErrorKind::Unavailable, error))
        }
        Error::NotImplemented { .. } | Error::NotSupported { .. } | Error::InvalidPath { .. } => {
            Failure::Definite(unsupported(&error))
        }
        other if is_too_soon(&other) => Failure::TooSoon(StoreError::new(StoreErrorKind::Unavailable, other)),
        // A refusal by the server (4xx) is among these too: the crate does not let it be told from a lost answer.
        other => match io_kind(&other).and_then(of_io) {
            Some(StoreErrorKind::Unsupported) => Failure::Definite(unsupported(&other)),
            Some(kind) => Failure::Definite(StoreError::new(kind, other)),
            None => Failure::Unknown(StoreError::new(StoreErrorKind::OutcomeUnknown, other)),
        },
    }
}

/// Returns `true` if the store refused a write because of its rate limit.
pub(super) fn is_too_soon(error: &Error) -> bool {
    cause::<TooSoon>(error).is_some()
}

/// What a register's refusal means.
pub(super) fn refused(outcome: Outcome, now: Timestamp) -> StoreError {
    match outcome {
        Outcome::Refused(Refusal::PreconditionFailed { precondition, current }) => {
            StoreErrorKind::PreconditionFailed { precondition, current }.into()
        }
        Outcome::Refused(Refusal::InFlight { deadline }) => {
            StoreErrorKind::InFlight { retry_after: now.until(deadline) }.into()
        }
        Outcome::Refused(Refusal::NotFound) => StoreErrorKind::NotFound.into(),
        Outcome::Refused(Refusal::Lease(failure)) => StoreErrorKind::LeaseFailed(failure).into(),
        Outcome::Refused(Refusal::LeaseConflict(conflict)) => StoreErrorKind::LeaseConflict(conflict).into(),
        other => StoreError::new(StoreErrorKind::Unavailable, format!("the register did not carry it out: {other:?}")),
    }
}

/// An error after which nobody can tell whether the change took effect.
pub(super) fn lost(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::OutcomeUnknown, error)
}

/// Why a read failed.
pub(super) fn of_read(error: Error) -> StoreError {
    match &error {
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => unsupported(&error),
        _ if is_bad_name(&error) => unsupported(&error),
        _ => StoreError::new(StoreErrorKind::Unavailable, error),
    }
}

/// The store cannot have such an object. Its own words, with the paths of this machine, are for the log.
fn unsupported(error: &Error) -> StoreError {
    tracing::info!(%error, "the store refused a name or a header field");
    let why = "a blob of this name, or with these header fields, cannot be kept in this store";
    StoreError::new(StoreErrorKind::Unsupported, why)
}

/// Whether the error says that there is no such object. In a folder, `a/b` does not exist either while `a` is a file.
pub(super) fn is_absence(error: &Error) -> bool {
    let not_a_folder = matches!(io_kind(error), Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory));
    matches!(error, Error::NotFound { .. }) || not_a_folder
}

/// What a file system's refusal means.
fn of_io(kind: io::ErrorKind) -> Option<StoreErrorKind> {
    use io::ErrorKind as Io;
    match kind {
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => Some(StoreErrorKind::Full),
        Io::NotADirectory | Io::IsADirectory | Io::AlreadyExists | Io::InvalidFilename | Io::InvalidInput => {
            Some(StoreErrorKind::Unsupported)
        }
        Io::PermissionDenied | Io::ReadOnlyFilesystem | Io::NotFound => Some(StoreErrorKind::Unavailable),
        _ => None,
    }
}

fn is_bad_name(error: &Error) -> bool {
    matches!(io_kind(error), Some(io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput))
}

/// The kind of the file system's error behind an error.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    cause::<io::Error>(error).map(io::Error::kind)
}

/// Finds an error of this type in an error's chain of sources.
fn cause<E: StdError + 'static>(error: &Error) -> Option<&E> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        source = error.source();
    }
    None
}
