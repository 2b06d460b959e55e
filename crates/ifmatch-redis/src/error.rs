//! Errors of connecting and of calls.

use std::error::Error;
use std::fmt;

use ifmatch_register::{RegisterError, RegisterErrorKind};
use ifmatch_runtime::Cause;
use redis::{ErrorKind, RedisError};

/// A server cannot be used.
#[derive(Debug)]
pub struct ConnectError {
    kind: ConnectErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// The reason why a server cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The URL is not valid.
    Url,
    /// The root certificate is not valid.
    Certificate,
    /// The server does not answer, or its certificate is not trusted.
    Unreachable,
    /// The server rejects the user or the password.
    Denied,
    /// The server is a replica or part of a cluster, or evicts keys.
    Unsuitable,
    /// The server has lost the register's records since this process connected first.
    Lost,
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
            ConnectErrorKind::Url => "not the URL of a Redis server",
            ConnectErrorKind::Certificate => "the root certificate for Redis is not valid",
            ConnectErrorKind::Unreachable => "the Redis server cannot be reached: check its address and certificate",
            ConnectErrorKind::Denied => "the Redis server denies access: check the user, the password and its rights",
            ConnectErrorKind::Unsuitable => "the Redis server cannot hold a register",
            ConnectErrorKind::Lost => "the Redis server has lost the records",
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

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        let kind = match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => ConnectErrorKind::Denied,
            _ if error.kind() == ErrorKind::AuthenticationFailed => ConnectErrorKind::Denied,
            _ => ConnectErrorKind::Unreachable,
        };
        Self::new(kind, Cause::explain(error))
    }
}

impl From<ConnectError> for RegisterError {
    /// Nothing is sent before a connection is established.
    fn from(error: ConnectError) -> Self {
        Self::new(RegisterErrorKind::Unavailable, error)
    }
}

/// Returns the meaning of a failed script.
///
/// A script either fails at its first write or not at all: the conditions of these errors do not change while it runs.
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
