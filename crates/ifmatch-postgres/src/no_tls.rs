//! URLs without the feature `tls`: their connections aren't encrypted.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ifmatch_register::{ConnectError, ConnectErrorKind};

use crate::connection::PostgresConnector;

/// Refuses the connection.
pub(crate) fn connector(_: Option<PathBuf>) -> Result<Arc<dyn PostgresConnector>, ConnectError> {
    let text = "the connection needs encryption: add the feature tls of ifmatch-postgres, connect with the service's own TLS, or \
                set sslmode=disable on a network that you trust";
    Err(ConnectError::new(ConnectErrorKind::Url, text))
}

/// No error is of rustls.
pub(crate) fn is_of_handshake(_: &tokio_postgres::Error) -> bool {
    false
}

/// Returns the error itself.
pub(crate) fn explain(error: tokio_postgres::Error) -> Box<dyn Error + Send + Sync> {
    error.into()
}
