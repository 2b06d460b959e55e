//! Errors of connecting and of calls.

use std::error::Error;
use std::fmt;

use ifmatch_register::{RegisterError, RegisterErrorKind};
use tonic::{Code, Status};

/// A cluster cannot be used.
#[derive(Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// The reason why a cluster cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The URL is not valid.
    Url,
    /// The root certificate is not valid.
    Certificate,
    /// No member answers, or their certificates are not trusted.
    Unreachable,
    /// The members reject the user or the password.
    Denied,
    /// The members belong to another cluster than the one that this process connected to first, or lack changes that it has
    /// seen.
    Other,
}

impl ConnectError {
    pub(crate) fn new(kind: ConnectErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// Returns the reason.
    pub fn kind(&self) -> ConnectErrorKind {
        self.kind
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            ConnectErrorKind::Url => "not the address of an etcd cluster",
            ConnectErrorKind::Certificate => "the root certificate for etcd is not valid",
            ConnectErrorKind::Unreachable => {
                "no etcd member can be reached: check the addresses, the certificate, and that a majority runs"
            }
            ConnectErrorKind::Denied => "etcd denies access: check the user, the password and its role",
            ConnectErrorKind::Other => {
                "another etcd cluster answers, perhaps one restored from a backup: restart all processes of ifmatch"
            }
        };
        write!(f, "{advice}: {}", self.source)
    }
}

impl Error for ConnectError {
    /// The message contains the cause, so the chain continues after it.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

impl From<Status> for ConnectError {
    fn from(status: Status) -> Self {
        // The last two: "authentication failed", "user name is empty", "authentication is not enabled".
        let is_denied = matches!(
            status.code(),
            Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument | Code::FailedPrecondition
        );
        Self::new(if is_denied { ConnectErrorKind::Denied } else { ConnectErrorKind::Unreachable }, status)
    }
}

impl From<ConnectError> for RegisterError {
    /// Nothing is sent before a connection is established.
    fn from(error: ConnectError) -> Self {
        Self::new(RegisterErrorKind::Unavailable, error)
    }
}

/// Returns `true` if the database is full. The transaction may have taken place: a member that finds out while it applies a
/// transaction completes it.
pub(crate) fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded")
}

/// Returns the meaning of a failed transaction. These codes are given by checks before a transaction; any other one, for
/// example that of a lost connection or of a lost leader, may have followed it.
pub(crate) fn failed(status: Status) -> RegisterError {
    let kind = match status.code() {
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => RegisterErrorKind::Unavailable,
        Code::ResourceExhausted if !is_full(&status) => RegisterErrorKind::Unavailable,
        _ => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, status)
}

/// Returns the error for an answer that no request gets.
pub(crate) fn unexpected() -> RegisterError {
    RegisterError::new(RegisterErrorKind::Ambiguous, "etcd gave an unexpected answer")
}
