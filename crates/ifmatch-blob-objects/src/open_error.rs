//! Why a store cannot be opened.

use ifmatch_blob::store::BoxError;
use thiserror::Error;

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
#[derive(Debug, Error)]
#[error("{what}{}", .source.as_ref().map(|source| format!(": {source}")).unwrap_or_default())]
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
