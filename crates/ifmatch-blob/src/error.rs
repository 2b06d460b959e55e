//! Errors of a store.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ifmatch_core::EntityTag;
use ifmatch_core::append::AppendFailure;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{LeaseConflict, LeaseFailure};
use ifmatch_core::precondition::Precondition;
use ifmatch_register::{DriverError, RegisterError};
use ifmatch_runtime::{Clock, SystemClock};
use thiserror::Error;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a store.
///
/// ```
/// use ifmatch_blob::store::{StoreError, StoreErrorKind};
///
/// let error = StoreError::new(StoreErrorKind::Full, "no space left on device");
/// assert_eq!(error.kind(), &StoreErrorKind::Full);
/// assert!(error.to_string().ends_with("no space left on device"));
/// ```
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<BoxError>,
}

/// The meaning of an error for the client. Nothing was changed, unless the kind says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A condition is false (412).
    #[error("the condition {} is false. Read the current version before you retry", .precondition.header())]
    PreconditionFailed {
        /// The condition.
        precondition: Precondition,
        /// The current tag, or `None` if there is no such blob.
        current: Option<EntityTag>,
    },
    /// Another write to the blob is in flight (409). A retry may succeed.
    #[error("another write to the blob is in flight. Retry later")]
    InFlight {
        /// Time until a retry.
        retry_after: Duration,
    },
    /// There is no such blob (404).
    #[error("no such blob. Check its name")]
    NotFound,
    /// There is no such container (404).
    #[error("no such container. Check its name")]
    ContainerNotFound,
    /// The container exists already (409).
    #[error("the container already exists. Use it, or choose another name")]
    ContainerExists,
    /// The container has blobs (409).
    #[error("the container isn't empty. Delete its blobs first")]
    ContainerNotEmpty,
    /// A snapshot of the blob was taken since its deletion began (409).
    #[error("a snapshot of the blob was taken in the meantime. Delete it first")]
    SnapshotTaken,
    /// The lease of the blob or the container forbids it (412).
    #[error("{0}")]
    LeaseFailed(LeaseFailure),
    /// The state of the lease doesn't permit the operation (409).
    #[error("{0}")]
    LeaseConflict(LeaseConflict),
    /// The body exceeds the limit (413).
    #[error("the body is larger than {limit} bytes, the limit. Send a smaller one")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The client stopped sending the body (400).
    #[error("the client stopped sending the body")]
    Interrupted,
    /// The body doesn't have the declared length (400).
    #[error("the body doesn't have the declared length. Send it again")]
    LengthMismatch,
    /// The body doesn't have the declared digest (400).
    #[error("the body doesn't match the declared digest. Send it again")]
    DigestMismatch,
    /// The blob is an append blob and the write is for another type, or vice versa (409).
    #[error("the existing blob is of another type (append or block). Delete it first")]
    OtherType,
    /// The append isn't possible (412, or 409 if the blob is sealed or has too many blocks).
    #[error("{0}")]
    AppendFailed(AppendFailure),
    /// The store can't keep the blob (400). The source states the reason.
    #[error("the store can't keep this blob")]
    Unsupported,
    /// The store is full (507).
    #[error("the store is full. Free some space")]
    Full,
    /// The store, or something it depends on, is unavailable (503). A retry may succeed.
    #[error("the store is unavailable")]
    Unavailable,
    /// Other responses, to this client or to all clients, occupy the memory that this one needs (503). A retry may
    /// succeed.
    #[error("there is no memory for the response. Retry later")]
    Crowded,
    /// The outcome of the write is unknown (503).
    #[error("the outcome of the write is unknown. Read the blob before you retry")]
    OutcomeUnknown,
    /// Stored data is damaged, or was written by a newer release (500).
    #[error("the stored data is damaged, or a newer release wrote it")]
    Unreadable,
}

impl StoreErrorKind {
    /// Returns `true` if a write that required a version found another one, or none. A writer that derived its content
    /// from that version can start over with the current one.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::PreconditionFailed { .. } | Self::NotFound)
    }
}

/// Counts a failure of the store, for the recorder of the crate `metrics`.
#[cfg(feature = "metrics")]
fn count(kind: &'static str) {
    metrics::counter!("ifmatch_store_errors_total", "kind" => kind).increment(1);
}

#[cfg(not(feature = "metrics"))]
fn count(_kind: &'static str) {}

impl StoreError {
    /// Creates an error with its cause.
    pub fn new(kind: StoreErrorKind, source: impl Into<BoxError>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// Creates the error of a write whose body ended with this error. If that is one of a store, which provides the bytes of a copy or of
    /// staged parts, the store has failed, and not the client.
    ///
    /// ```
    /// use ifmatch_blob::store::{StoreError, StoreErrorKind};
    ///
    /// assert_eq!(StoreError::of_body("the connection broke".into()).kind(), &StoreErrorKind::Interrupted);
    /// let unread = StoreError::of_body(StoreError::from(StoreErrorKind::Unavailable).into());
    /// assert_eq!((unread.kind(), unread.is_of_source()), (&StoreErrorKind::Unavailable, true));
    /// ```
    pub fn of_body(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(unread) => {
                let is_lasting = unread.kind == StoreErrorKind::Unreadable;
                let kind = if is_lasting {
                    StoreErrorKind::Unreadable
                } else {
                    StoreErrorKind::Unavailable
                };
                Self::new(kind, SourceFailed(*unread))
            }
            Err(error) => Self::new(StoreErrorKind::Interrupted, error),
        }
    }

    /// Returns `true` if a store couldn't provide the bytes of the write: it failed, or the version to read was replaced since.
    pub fn is_of_source(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|source| source.is::<SourceFailed>())
    }

    /// Logs and counts an error that a dialect reports with 5xx. A client may try again after contention; the store
    /// hasn't failed.
    ///
    /// A full disk fails each request, and most logs are on the disk. So the same error is logged once a minute, with the number of
    /// times that it wasn't.
    pub fn report(&self) {
        let is_contention = matches!(self.kind, StoreErrorKind::InFlight { .. })
            || self.source.as_ref().is_some_and(|source| {
                matches!(source.downcast_ref(), Some(DriverError::Contention))
            });
        if is_contention {
            tracing::warn!(error = %self, "a write gave up: other writers of the same resource were in the way");
            return;
        }
        if matches!(
            self.kind,
            StoreErrorKind::Unsupported | StoreErrorKind::Crowded
        ) {
            return;
        }
        let text = self.to_string();
        if let Some(repeated) = REPEATS.note(&text, SystemClock.now()) {
            tracing::error!(error = %text, repeated, "the store failed");
        }
        count(match self.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown => "unavailable",
            StoreErrorKind::Full => "full",
            _ => "unreadable",
        });
    }

    /// Returns the meaning of the error.
    pub fn kind(&self) -> &StoreErrorKind {
        &self.kind
    }

    /// Returns the message for an operator: of a register that failed, what is wrong with it.
    pub fn reason(&self) -> String {
        let register = self
            .source
            .as_ref()
            .and_then(|source| source.downcast_ref::<RegisterError>());
        register.map_or_else(|| self.to_string(), RegisterError::reason)
    }

    /// Converts an error about a container's record into one about the container.
    #[must_use]
    pub fn of_container(self) -> Self {
        match self.kind {
            StoreErrorKind::NotFound => Self {
                kind: StoreErrorKind::ContainerNotFound,
                ..self
            },
            _ => self,
        }
    }
}

/// The failures of all stores that were logged.
static REPEATS: Repeats = Repeats(Mutex::new(Vec::new()));

/// Texts that were logged recently, when, and how often they weren't since.
#[derive(Debug)]
struct Repeats(Mutex<Vec<(String, Timestamp, u64)>>);

impl Repeats {
    /// Time for which a text isn't repeated.
    const QUIET: Duration = Duration::from_mins(1);
    /// Maximum number of texts to remember. Most failures have a few.
    const MAX: usize = 16;

    /// Notes a failure. Returns how often its text was left out since it was logged, if it is to be logged now.
    fn note(&self, text: &str, now: Timestamp) -> Option<u64> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = texts.iter().position(|(known, ..)| known == text);
        if let Some((_, at, left_out)) = found.and_then(|found| texts.get_mut(found))
            && at.until(now) < Self::QUIET
        {
            *left_out += 1;
            return None;
        }
        let left_out = found.map_or(0, |found| texts.remove(found).2);
        if texts.len() == Self::MAX {
            texts.remove(0);
        }
        texts.push((text.to_owned(), now, 0));
        Some(left_out)
    }
}

/// A store couldn't provide the bytes of a write.
#[derive(Debug, Error)]
#[error("can't read the bytes to write: {0}")]
struct SourceFailed(StoreError);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl std::error::Error for StoreError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().and_then(std::error::Error::source)
    }
}

impl From<StoreErrorKind> for StoreError {
    fn from(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl From<LeaseFailure> for StoreError {
    fn from(failure: LeaseFailure) -> Self {
        StoreErrorKind::LeaseFailed(failure).into()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use ifmatch_register::RegisterErrorKind;

    use super::*;

    #[test]
    fn a_failure_is_logged_once_a_minute_with_the_number_left_out() {
        let repeats = Repeats(Mutex::default());
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(repeats.note("full", at(100)), Some(0));
        assert_eq!(
            [1, 2, 59].map(|later| repeats.note("full", at(100 + later))),
            [None; 3]
        );
        assert_eq!(repeats.note("gone", at(101)), Some(0), "another failure");
        assert_eq!(
            (repeats.note("full", at(160)), repeats.note("full", at(161))),
            (Some(3), None)
        );
        let others = (0..2 * Repeats::MAX).map(|other| repeats.note(&other.to_string(), at(161)));
        assert_eq!(others.collect::<Vec<_>>(), vec![Some(0); 2 * Repeats::MAX]);
        assert_eq!(
            repeats.0.lock().unwrap().len(),
            Repeats::MAX,
            "texts that name files don't fill the memory"
        );
    }

    #[test]
    fn a_chain_of_errors_names_each_cause_once() {
        let register = RegisterError::new(
            RegisterErrorKind::Unavailable,
            io::Error::other("the disk is gone"),
        );
        let error = StoreError::new(StoreErrorKind::Unavailable, register);
        let chain = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
        let chain: Vec<_> = chain.map(ToString::to_string).collect();
        assert_eq!(
            chain.join("; ").matches("the disk is gone").count(),
            1,
            "{chain:?}"
        );
        assert_eq!(
            error.reason(),
            "the register is unavailable, and nothing was changed: the disk is gone"
        );
    }
}
