//! Errors of connecting and of calls.

use std::error::Error;

use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError, RegisterErrorKind};
use ifmatch_runtime::Cause;
use redis::{ErrorKind, RedisError};

/// Returns the error of a server that can't be used.
pub(crate) fn unusable(
    kind: ConnectErrorKind,
    cause: impl Into<Box<dyn Error + Send + Sync>>,
) -> ConnectError {
    let advice = match kind {
        ConnectErrorKind::Url => "not a Redis URL",
        ConnectErrorKind::Certificate => "the root certificate for Redis is invalid",
        ConnectErrorKind::Denied => {
            "Redis denies access. Check the user, the password and its rights"
        }
        ConnectErrorKind::Unsuitable => "this Redis server can't hold a register",
        ConnectErrorKind::Lost => "the Redis server lost the records",
        _ => "can't reach Redis. Check its address and certificate",
    };
    match kind {
        // These causes are of this crate, and say what to do.
        ConnectErrorKind::Unsuitable | ConnectErrorKind::Lost => {
            ConnectError::new(kind, format!("{advice}: {}", cause.into()))
        }
        _ => ConnectError::new(kind, advice).because(cause),
    }
}

/// Returns the meaning of a call that failed while connecting.
pub(crate) fn refused(error: RedisError) -> ConnectError {
    let kind = match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => ConnectErrorKind::Denied,
        _ if error.kind() == ErrorKind::AuthenticationFailed => ConnectErrorKind::Denied,
        _ => ConnectErrorKind::Unreachable,
    };
    if error.is_connection_refusal() {
        return ConnectError::new(
            kind,
            "Redis refused the connection. Check its address, and that it is running.",
        );
    }
    unusable(kind, Cause::explain(error, "redis://", "SSL_CERT_FILE"))
}

/// Returns the meaning of a failed script.
///
/// A script either fails at its first write or not at all: the conditions of these errors don't change while it runs.
/// Any other error, for example a lost connection or a key of another type, may have followed a write.
pub(crate) fn failed(error: RedisError) -> RegisterError {
    let kind = match error.code() {
        Some("OOM") => RegisterErrorKind::Full,
        Some(
            "BUSY" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOAUTH" | "NOREPLICAS" | "NOSCRIPT"
            | "READONLY",
        ) => RegisterErrorKind::Unavailable,
        _ => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, error)
}

/// Returns the error for a response that no script gives.
pub(crate) fn unexpected() -> RegisterError {
    RegisterError::new(
        RegisterErrorKind::Ambiguous,
        "the Redis server sent an unexpected response",
    )
}
