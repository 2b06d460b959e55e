//! Why a store cannot be opened.

use std::fmt;

use ifmatch_blob::store::BoxError;

/// Why a store cannot be opened; the message says what to do.
///
/// ```
/// use ifmatch_blob_objects::{Backing, OpenErrorKind};
///
/// # #[cfg(feature = "local")] {
/// let error = Backing::from_url("ftp://host/", []).unwrap_err();
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
    /// The URL is not one of a store.
    Url,
    /// The folder cannot be created or used.
    Folder,
    /// A setting is missing or wrong: a credential, a region, an endpoint.
    Settings,
    /// The store cannot be reached, or refuses to be written to.
    Unusable,
    /// The store belongs to a gateway with another register.
    Taken,
}

impl OpenError {
    pub(super) fn new(kind: OpenErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    pub(super) fn because(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.what),
            None => write!(f, "{}", self.what),
        }
    }
}

impl std::error::Error for OpenError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().and_then(std::error::Error::source)
    }
}
