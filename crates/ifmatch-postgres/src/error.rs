//! Errors of opening, and the meaning of the server's errors for a swap.

use std::error::Error;
use std::fmt;

use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError, RegisterErrorKind};
use tokio_postgres::error::{Severity, SqlState};

use crate::tls;

/// Describes a failed connection or statement.
pub(crate) fn of_connection(error: tokio_postgres::Error) -> ConnectError {
    let (kind, text) = match error.code() {
        Some(code) if is_class(code, "28") => (
            ConnectErrorKind::Denied,
            "the server refuses the user: set the right password in PGPASSWORD or PGPASSFILE",
        ),
        Some(code) if is_class(code, "3D") => (ConnectErrorKind::Denied, "there is no such database: create it"),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => (
            ConnectErrorKind::Denied,
            "the user lacks rights: migrate needs CREATE on the schema; use of the register needs SELECT, INSERT, UPDATE \
             and DELETE on ifmatch_records, SELECT and UPDATE on ifmatch_epoch, and SELECT on ifmatch_schema",
        ),
        None if is_read_only(&error) => (
            ConnectErrorKind::Unsuitable,
            "the server is a standby, or read-only: name the primary, or all hosts, in the URL",
        ),
        None if is_tls(&error) => (
            ConnectErrorKind::Certificate,
            "the connection cannot be encrypted: set sslrootcert to the file of the server's authority, and use the \
             host name of its certificate, or set sslmode=disable on a network that you trust",
        ),
        None if is_configuration(&error) => {
            (ConnectErrorKind::Denied, "the server asks for a password: set PGPASSWORD or PGPASSFILE")
        }
        _ => (ConnectErrorKind::Unreachable, "the server cannot be used: check that it runs and accepts connections"),
    };
    ConnectError::new(kind, text).because(Chain(&*tls::explain(error)).to_string())
}

fn is_class(code: &SqlState, class: &str) -> bool {
    code.code().starts_with(class)
}

/// Returns `true` for errors of the TLS handshake. The client library tells its errors apart by their text only.
fn is_tls(error: &tokio_postgres::Error) -> bool {
    tls::is_of_handshake(error) || error.to_string().starts_with("error performing TLS handshake")
}

/// Returns `true` if no host of the URL accepts writes.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|error| error.downcast_ref::<std::io::Error>());
    cause.is_some_and(|error| error.to_string() == "database does not allow writes")
}

fn is_configuration(error: &tokio_postgres::Error) -> bool {
    error.to_string().starts_with("invalid configuration")
}

/// An error with its causes, since the client library's messages don't contain them.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Returns the meaning of a statement's failure.
///
/// An error that the server reports, and continues after, has undone the statement. After any other, the statement may
/// have been committed, or may still be.
pub(crate) fn of_statement(error: &tokio_postgres::Error) -> RegisterError {
    let kind = match error.as_db_error() {
        Some(error) if error.parsed_severity() != Some(Severity::Error) => RegisterErrorKind::Ambiguous,
        Some(error) if is_class(error.code(), "53") && *error.code() != SqlState::TOO_MANY_CONNECTIONS => {
            RegisterErrorKind::Full
        }
        Some(_) => RegisterErrorKind::Unavailable,
        None => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, Chain(error).to_string())
}

/// Returns `true` if nothing was changed because of the locks of other transactions.
pub(crate) fn is_lock(error: &tokio_postgres::Error) -> bool {
    let locks = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_SERIALIZATION_FAILURE];
    let Some(error) = error.as_db_error() else { return false };
    error.parsed_severity() == Some(Severity::Error) && locks.contains(error.code())
}
