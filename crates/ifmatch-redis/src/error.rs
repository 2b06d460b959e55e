//! Errors of connecting and of calls.

use std::error::Error;

use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError, RegisterErrorKind};
use ifmatch_runtime::Cause;
use redis::{ErrorKind, RedisError};

/// Returns the error of a server that can't be used.
pub(crate) fn unusable(kind: ConnectErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
    let advice = match kind {
        ConnectErrorKind::Url => "not the URL of a Redis server",
        ConnectErrorKind::Certificate => "the root certificate for Redis is not valid",
        ConnectErrorKind::Denied => "the Redis server denies access: check the user, the password and its rights",
        ConnectErrorKind::Unsuitable => "the Redis server cannot hold a register",
        ConnectErrorKind::Lost => "the Redis server has lost the records",
        _ => "the Redis server cannot be reached: check its address and certificate",
    };
    ConnectError::new(kind, advice).because(cause)
}

/// Returns the meaning of a call that failed while connecting.
pub(crate) fn refused(error: RedisError) -> ConnectError {
    let kind = match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => ConnectErrorKind::Denied,
        _ if error.kind() == ErrorKind::AuthenticationFailed => ConnectErrorKind::Denied,
        _ => ConnectErrorKind::Unreachable,
    };
    unusable(kind, Cause::explain(error))
}

/// Returns the meaning of a failed script.
///
/// A script either fails at its first write or not at all: the conditions of these errors don't change while it runs.
/// Any other error, for example a lost connection or a key of another type, may have followed a write.
pub(crate) fn failed(error: RedisError) -> RegisterError {
    let kind = match error.code() {
        Some("OOM") => RegisterErrorKind::Full,
        Some("BUSY" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOAUTH" | "NOREPLICAS" | "NOSCRIPT" | "READONLY") => {
            RegisterErrorKind::Unavailable
        }
        _ => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, error)
}

/// Returns the error for an answer that no script gives.
pub(crate) fn unexpected() -> RegisterError {
    RegisterError::new(RegisterErrorKind::Ambiguous, "the Redis server gave an unexpected answer")
}
