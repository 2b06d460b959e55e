//! Errors of opening, and the meaning of the server's errors for a swap.

use std::error::Error;
use std::{fmt, io};

use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterError, RegisterErrorKind};
use tokio_postgres::Config;
use tokio_postgres::error::{Severity, SqlState};

use crate::passwords::port;
use crate::{platform, tls};

/// Describes a failed attempt to connect to the hosts of `config`.
pub(crate) fn of_attempt(config: &Config, error: tokio_postgres::Error) -> ConnectError {
    let causes = std::iter::successors(Some(&error as &(dyn Error + 'static)), |error| {
        (*error).source()
    });
    let io = causes
        .last()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    let server = hosts(config);
    let text = match io {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("PostgreSQL at {server} refused the connection. Check that it is running.")
        }
        Some(error) if error.to_string().starts_with("failed to lookup address") => {
            format!("can't find the host of PostgreSQL at {server}. Check the URL.")
        }
        Some(error) if error.kind() == io::ErrorKind::TimedOut => unanswered(config),
        _ => return of_connection(error),
    };
    ConnectError::new(ConnectErrorKind::Unreachable, text)
}

/// Says that the hosts of `config` don't respond.
pub(crate) fn unanswered(config: &Config) -> String {
    let server = hosts(config);
    format!(
        "PostgreSQL at {server} doesn't respond. Check that it runs, and that no firewall drops the connection."
    )
}

/// Returns the hosts with their ports.
fn hosts(config: &Config) -> String {
    let named = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(at, host)| platform::shown(host, port(config, at)));
    let addresses = config
        .get_hostaddrs()
        .iter()
        .enumerate()
        .map(|(at, address)| format!("{address}:{}", port(config, at)));
    let mut all: Vec<String> = named.collect();
    if all.is_empty() {
        all = addresses.collect();
    }
    all.join(", ")
}

/// Describes a failed connection or statement.
pub(crate) fn of_connection(error: tokio_postgres::Error) -> ConnectError {
    let (kind, text) = match error.code() {
        Some(code) if is_class(code, "28") => (
            ConnectErrorKind::Denied,
            "PostgreSQL rejected the user or the password. Set the right one in PGPASSWORD or PGPASSFILE",
        ),
        Some(code) if is_class(code, "3D") => {
            (ConnectErrorKind::Denied, "no such database. Create it")
        }
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => (
            ConnectErrorKind::Denied,
            "the user lacks rights. `migrate` needs CREATE on the schema; the register needs SELECT, INSERT, UPDATE and DELETE \
             on ifmatch_records, SELECT and UPDATE on ifmatch_epoch, and SELECT on ifmatch_schema",
        ),
        None if is_read_only(&error) => (
            ConnectErrorKind::Unsuitable,
            "the server is a standby, or read-only. Name the primary, or all hosts, in the URL",
        ),
        None if is_tls(&error) => (
            ConnectErrorKind::Certificate,
            "the connection can't be encrypted. Set sslrootcert to the file of the server's authority, and use the host name in \
             its certificate; or set sslmode=disable on a network that you trust",
        ),
        None if is_configuration(&error) => (
            ConnectErrorKind::Denied,
            "the server asks for a password. Set PGPASSWORD or PGPASSFILE",
        ),
        _ => (
            ConnectErrorKind::Unreachable,
            "the server is unusable. Check that it runs and accepts connections",
        ),
    };
    ConnectError::new(kind, text).because(Chain(&*tls::explain(error)).to_string())
}

/// Returns `true` for a code of this class: its first two characters (appendix A of PostgreSQL's manual).
fn is_class(code: &SqlState, class: &str) -> bool {
    code.code().starts_with(class)
}

/// Returns `true` for errors of the TLS handshake. The client library tells its errors apart by their text only.
fn is_tls(error: &tokio_postgres::Error) -> bool {
    tls::is_of_handshake(error)
        || error
            .to_string()
            .starts_with("error performing TLS handshake")
}

/// Returns `true` if no host of the URL accepts writes.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let cause = error
        .source()
        .and_then(|error| error.downcast_ref::<io::Error>());
    cause.is_some_and(|error| error.to_string() == "database does not allow writes")
}

/// Returns `true` for errors of the settings, such as a missing password.
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
        Some(error) if error.parsed_severity() != Some(Severity::Error) => {
            RegisterErrorKind::Ambiguous
        }
        Some(error)
            if is_class(error.code(), "53") && *error.code() != SqlState::TOO_MANY_CONNECTIONS =>
        {
            RegisterErrorKind::Full
        }
        Some(_) => RegisterErrorKind::Unavailable,
        None => RegisterErrorKind::Ambiguous,
    };
    RegisterError::new(kind, Chain(error).to_string())
}

/// Returns `true` if nothing was changed because of the locks of other transactions.
pub(crate) fn is_lock(error: &tokio_postgres::Error) -> bool {
    let locks = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    let Some(error) = error.as_db_error() else {
        return false;
    };
    error.parsed_severity() == Some(Severity::Error) && locks.contains(error.code())
}
