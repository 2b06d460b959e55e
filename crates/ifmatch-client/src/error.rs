//! Errors of operations: a conflict, an unknown outcome and a refusal are different things.

use std::time::Duration;

use crate::version::Version;

/// Error of an operation.
///
/// ```
/// use ifmatch_client::{Client, ErrorKind, Memory};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let note = Client::new(Memory::default()).json::<String>("note");
/// note.create("mine".to_owned()).await?;
/// let error = note.create("theirs".to_owned()).await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Conflict { .. }));
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

/// Kind of an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The condition is false: another writer was first. Nothing was written.
    Conflict {
        /// The current version, if the server reported it.
        current: Option<Version>,
    },
    /// Every attempt within the time limit lost to another writer. Nothing was written.
    Contended,
    /// It is unknown whether the request took effect.
    Unknown,
    /// The server or this client rejects the request; a retry won't help. Nothing was written, unless the server ignores conditions:
    /// what was written to find that out may be left.
    Refused,
    /// The lock is lost, or another holder has written since. Nothing was written.
    Lost,
}

impl Error {
    /// Creates an error, for the implementation of a [`Backend`](crate::Backend).
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Sets the time after which the server asks for another attempt (RFC 9110 §10.2.3).
    #[must_use]
    pub fn with_retry_after(mut self, delay: Option<Duration>) -> Self {
        self.retry_after = delay;
        self
    }

    /// Returns the time after which the server asks for another attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unknown, message)
    }

    /// Returns the error of a server that has accepted a write although this condition is false.
    pub(crate) fn ignores(condition: &str) -> Self {
        let why = "it accepted a write although the condition is false, so clients would overwrite each other's changes";
        let way_out = "Use a server that honours conditions (`ifmatch check URL` tests one)";
        Self::refused(format!("the server ignores {condition}: {why}. {way_out}"))
    }

    pub(crate) fn lost() -> Self {
        Self::new(
            ErrorKind::Lost,
            "the lock is lost. Its work must not continue",
        )
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.kind == ErrorKind::Unknown
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.kind, ErrorKind::Conflict { .. })
    }
}
