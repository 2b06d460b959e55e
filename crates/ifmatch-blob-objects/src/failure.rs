//! Conversion of an object store's errors.

use std::error::Error as StdError;
use std::iter::successors;
use std::time::Duration;
use std::{fmt, io};

use ifmatch_blob::store::{BoxError, StoreError, StoreErrorKind};
use object_store::Error;

/// The store rejected a write that followed another write of the same object too soon. Nothing was changed.
///
/// A custom object store reports this as the source of an [`object_store::Error::Generic`]. The write is then retried
/// after a second instead of being reported as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store accepts one write at a time for an object")]
pub struct TooSoon;

/// The state after a failed write.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// The object has changed: look it up again.
    Changed,
    /// The write followed another one too soon and didn't take effect: wait, then retry.
    TooSoon(StoreError),
    /// The write didn't take effect.
    Definite(StoreError),
    /// The write may have taken effect, or may still do so.
    Unknown(StoreError),
}

/// Converts the error of a write.
pub(super) fn of_write(error: Error) -> WriteFailure {
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            WriteFailure::Changed
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::NotFound { .. } => {
            WriteFailure::Definite(StoreError::new(StoreErrorKind::Unavailable, error))
        }
        Error::NotImplemented { .. } | Error::NotSupported { .. } | Error::InvalidPath { .. } => {
            WriteFailure::Definite(unsupported(&error))
        }
        other if is_of_metadata(&other) => WriteFailure::Definite(unsupported(&other)),
        other if is_too_soon(&other) => {
            WriteFailure::TooSoon(StoreError::new(StoreErrorKind::Unavailable, other))
        }
        // Includes other refusals by the server (4xx), which the crate doesn't distinguish from a lost response.
        other => match io_kind(&other).and_then(of_io) {
            Some(StoreErrorKind::Unsupported) => WriteFailure::Definite(unsupported(&other)),
            Some(kind) => WriteFailure::Definite(StoreError::new(kind, other)),
            None => WriteFailure::Unknown(StoreError::new(StoreErrorKind::OutcomeUnknown, other)),
        },
    }
}

/// Returns `true` if the store refused a write because of its rate limit.
pub(super) fn is_too_soon(error: &Error) -> bool {
    cause::<TooSoon>(error).is_some()
}

/// Returns `true` if S3 or Azure refused a write because of its metadata, as it would refuse each attempt. The crate gives access to
/// the response by the text of its error only, which begins with the status and ends with the body.
fn is_of_metadata(error: &Error) -> bool {
    sources(error).map(ToString::to_string).any(|text| {
        text.starts_with("Server returned non-2xx status code: 400")
            && text.contains("<Code>MetadataTooLarge</Code>")
    })
}

/// Returns the error of a change that other writers keep from succeeding.
pub(super) fn contended() -> StoreError {
    StoreErrorKind::InFlight {
        retry_after: Duration::from_secs(1),
    }
    .into()
}

/// Converts an error with an unknown outcome.
pub(super) fn lost(error: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::OutcomeUnknown, error)
}

/// Converts the error of a read.
pub(super) fn of_read(error: Error) -> StoreError {
    match &error {
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            unsupported(&error)
        }
        _ if is_bad_name(&error) => unsupported(&error),
        _ => StoreError::new(StoreErrorKind::Unavailable, error),
    }
}

/// The store can't hold such an object. Its message contains paths of this machine, so it's only logged.
fn unsupported(error: &Error) -> StoreError {
    tracing::info!(%error, "the store rejected a name or a header field");
    let why = "this store can't keep a blob with this name or these header fields";
    StoreError::new(StoreErrorKind::Unsupported, why)
}

/// Returns `true` if there is no such object. In a folder, `a/b` doesn't exist either if `a` is a file.
pub(super) fn is_absence(error: &Error) -> bool {
    let not_a_folder = matches!(
        io_kind(error),
        Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    );
    matches!(error, Error::NotFound { .. }) || not_a_folder
}

/// Returns `true` if a store may have rejected the range of a read: because the object is shorter, or because it has no such
/// ranges, as Azure has no suffixes. The crate doesn't distinguish that from a response that reports a failure of the server.
pub(super) fn may_be_of_range(error: &Error) -> bool {
    matches!(error, Error::Generic { .. } | Error::NotSupported { .. }) && io_kind(error).is_none()
}

/// Converts a file system's refusal.
fn of_io(kind: io::ErrorKind) -> Option<StoreErrorKind> {
    use io::ErrorKind as Io;
    match kind {
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => Some(StoreErrorKind::Full),
        Io::NotADirectory
        | Io::IsADirectory
        | Io::AlreadyExists
        | Io::InvalidFilename
        | Io::InvalidInput => Some(StoreErrorKind::Unsupported),
        Io::PermissionDenied | Io::ReadOnlyFilesystem | Io::NotFound => {
            Some(StoreErrorKind::Unavailable)
        }
        _ => None,
    }
}

fn is_bad_name(error: &Error) -> bool {
    matches!(
        io_kind(error),
        Some(io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput)
    )
}

/// Returns the kind of the underlying file system error.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    cause::<io::Error>(error).map(io::Error::kind)
}

/// Finds an error of this type in an error's chain of sources.
fn cause<E: StdError + 'static>(error: &Error) -> Option<&E> {
    sources(error).find_map(|source| source.downcast_ref())
}

fn sources(error: &Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    successors(error.source(), |error: &&(dyn StdError + 'static)| {
        (*error).source()
    })
}

/// Why a store can't be opened; the message says what to do.
///
/// ```
/// use ifmatch_blob_objects::{BackingStore, OpenErrorKind};
///
/// # #[cfg(feature = "local")] {
/// let error = BackingStore::from_url("ftp://host/", []).unwrap_err();
/// assert_eq!(error.kind(), OpenErrorKind::Url);
/// # }
/// ```
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    what: String,
    source: Option<BoxError>,
}

/// The kind of an [`OpenError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// The URL isn't one of a store.
    Url,
    /// The folder can't be created or used.
    Folder,
    /// A setting is missing or wrong: a credential, a region, an endpoint.
    Settings,
    /// The store can't be reached, or refuses to be written to.
    Unusable,
    /// The store belongs to a gateway with another register.
    Taken,
}

impl OpenError {
    pub(super) fn new(kind: OpenErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            source: None,
        }
    }

    pub(super) fn because(self, source: impl Into<BoxError>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} ({source})", self.what),
            None => write!(f, "{}", self.what),
        }
    }
}

impl StdError for OpenError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().and_then(StdError::source)
    }
}
