//! Why a store could not do what it was asked to.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use ifmatch_core::EntityTag;
use ifmatch_core::lease::{LeaseConflict, LeaseFailure};
use ifmatch_core::precondition::Precondition;

/// Any error, to be passed on.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a store could not do what it was asked to.
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

/// What a failure means for the client. Nothing was changed, unless the kind says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A condition is false: 412.
    PreconditionFailed {
        /// The condition.
        precondition: Precondition,
        /// The current tag; none where there is no such blob.
        current: Option<EntityTag>,
    },
    /// Another write to the blob is in flight: 409, and worth another try.
    InFlight {
        /// When to try again.
        retry_after: Duration,
    },
    /// There is no such blob: 404.
    NotFound,
    /// There is no such container: 404.
    ContainerNotFound,
    /// There is such a container already: 409.
    ContainerExists,
    /// The lease of the blob, or of the container, does not allow it: 412.
    LeaseFailed(LeaseFailure),
    /// The lease operation is not possible in the lease's state: 409.
    LeaseConflict(LeaseConflict),
    /// The body is longer than the limit: 413.
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The body ended early with the client's error: the client stopped sending.
    Interrupted,
    /// The body has not the length that was promised: 400.
    LengthMismatch,
    /// The body has not the digest that was promised: 400.
    DigestMismatch,
    /// The store cannot keep what it was asked to keep; the source says what: 400.
    Unsupported,
    /// There is no room left: 507.
    Full,
    /// The store, or what it relies on, does not work at the moment: 503, and worth another try.
    Unavailable,
    /// Nobody can tell whether the write took place, or will: 503.
    OutcomeUnknown,
    /// What is stored is damaged, or a newer release wrote it: 500.
    Unreadable,
}

impl StoreError {
    /// An error of this kind, with its cause.
    pub fn new(kind: StoreErrorKind, source: impl Into<BoxError>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What the failure means.
    pub fn kind(&self) -> &StoreErrorKind {
        &self.kind
    }

    /// The same of a container, where it is said of the record of one.
    #[must_use]
    pub fn of_container(self) -> Self {
        match self.kind {
            StoreErrorKind::NotFound => Self { kind: StoreErrorKind::ContainerNotFound, ..self },
            _ => self,
        }
    }
}

impl From<StoreErrorKind> for StoreError {
    fn from(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PreconditionFailed { precondition, .. } => {
                write!(f, "the condition {} is false", precondition.header())
            }
            Self::InFlight { .. } => f.write_str("another write to the blob is in flight, try again later"),
            Self::NotFound => f.write_str("there is no such blob"),
            Self::ContainerNotFound => f.write_str("there is no such container: create it first"),
            Self::ContainerExists => f.write_str("there is such a container already"),
            Self::LeaseFailed(failure) => failure.fmt(f),
            Self::LeaseConflict(conflict) => conflict.fmt(f),
            Self::TooLarge { limit } => write!(f, "the body is longer than {limit} bytes"),
            Self::Interrupted => f.write_str("the client stopped sending the body"),
            Self::LengthMismatch => f.write_str("the body has not the promised length"),
            Self::DigestMismatch => f.write_str("the body has not the promised digest, send it again"),
            Self::Unsupported => f.write_str("the store cannot keep this"),
            Self::Full => f.write_str("the store is full"),
            Self::Unavailable => f.write_str("the store does not work at the moment, try again later"),
            Self::OutcomeUnknown => f.write_str("nobody can tell whether the write took place"),
            Self::Unreadable => f.write_str("what is stored is damaged, or a newer release wrote it"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
