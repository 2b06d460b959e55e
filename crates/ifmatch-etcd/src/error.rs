//! Errors of connecting and of calls.

use std::error::Error;

use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError, RegisterErrorKind};
use tonic::{Code, Status};

/// Returns the error of a cluster that can't be used.
pub(crate) fn unusable(
    kind: ConnectErrorKind,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> ConnectError {
    let advice = match kind {
        ConnectErrorKind::Url => "not an etcd URL",
        ConnectErrorKind::Certificate => "the root certificate for etcd is invalid",
        ConnectErrorKind::Denied => "etcd denies access. Check the user, the password and its role",
        ConnectErrorKind::Lost => {
            "another etcd cluster responds, perhaps one restored from a backup. Restart all ifmatch processes"
        }
        _ => {
            "can't reach any etcd member. Check the addresses, the certificate, and that a majority runs"
        }
    };
    ConnectError::new(kind, advice).because(cause)
}

/// Returns the meaning of a call that failed while connecting.
pub(crate) fn refused(status: Status) -> ConnectError {
    // The last two: "authentication failed", "user name is empty", "authentication is not enabled".
    let is_denied = matches!(
        status.code(),
        Code::Unauthenticated
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
    );
    unusable(
        if is_denied {
            ConnectErrorKind::Denied
        } else {
            ConnectErrorKind::Unreachable
        },
        status,
    )
}

/// Returns `true` if the database is full. The transaction may have taken place: a member that finds out while it applies a
/// transaction completes it.
pub(crate) fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded")
}

/// Returns the meaning of a failed transaction. These codes are given by checks before a transaction; any other one, for
/// example for a lost connection or a lost leader, may have followed it.
pub(crate) fn failed(status: Status) -> RegisterError {
    let kind = match status.code() {
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
            RegisterErrorKind::Unavailable
        }
        Code::ResourceExhausted if !is_full(&status) => RegisterErrorKind::Unavailable,
        _ => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, status)
}

/// Returns the error for a response that no request gets.
pub(crate) fn unexpected() -> RegisterError {
    RegisterError::new(
        RegisterErrorKind::Ambiguous,
        "etcd sent an unexpected response",
    )
}
