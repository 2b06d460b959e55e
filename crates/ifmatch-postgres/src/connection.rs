//! One connection to the server.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ifmatch_register::{ConnectError, ConnectErrorKind, async_trait};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Socket};
use tokio_util::task::AbortOnDropHandle;

use crate::STATEMENT_LIMIT;
use crate::error::{of_attempt, of_connection, unanswered};
use crate::settings::ConnectionSettings;

/// Time limit of a connection with its checks, for all hosts together.
const OPENING_LIMIT: Duration = Duration::from_secs(10);

/// The session's parameters, whatever the defaults of the database and the user.
///
/// There is no `statement_timeout`: a server that cancels a statement while it waits for a synchronous standby shows a
/// change that isn't replicated.
const SESSION: &str = "
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0;
    SET idle_session_timeout = 0;
    SET lock_timeout = '1s';
    SET client_min_messages = 'warning'";

/// A connection. Dropping it closes the socket, and cancels nothing on the server.
pub(crate) struct PostgresConnection {
    pub(crate) client: Client,
    /// Set by a warning of the server: a commit was perhaps not replicated.
    warned: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

/// Waits for the first statements of a new connection.
///
/// # Errors
/// [`ConnectErrorKind::Unreachable`] if they take too long.
pub(crate) async fn answered<T>(
    statements: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::time::timeout(STATEMENT_LIMIT, statements)
        .await
        .unwrap_or_else(|_| {
            let text =
                "PostgreSQL accepts connections, but doesn't respond. Check its load and its log.";
            Err(ConnectError::new(ConnectErrorKind::Unreachable, text))
        })
}

impl ConnectionSettings {
    /// Connects to the primary, and checks that the server keeps what it acknowledges.
    pub(crate) async fn connect(&self) -> Result<PostgresConnection, ConnectError> {
        let connecting = async {
            let connection = self.connector.open(&self.config).await?;
            connection.check().await?;
            Ok(connection)
        };
        tokio::time::timeout(OPENING_LIMIT, connecting)
            .await
            .unwrap_or_else(|_| {
                Err(ConnectError::new(
                    ConnectErrorKind::Unreachable,
                    unanswered(&self.config),
                ))
            })
    }
}

/// Opens connections, with TLS or without.
#[async_trait]
pub(crate) trait PostgresConnector: Send + Sync {
    /// Opens a connection to one of the hosts.
    async fn open(&self, config: &Config) -> Result<PostgresConnection, ConnectError>;
}

/// The TLS of a service, or `NoTls`: every `MakeTlsConnect` that tasks can share.
pub trait Tls:
    MakeTlsConnect<Socket, Stream: Send, TlsConnect: TlsConnect<Socket, Future: Send> + Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<T> Tls for T where
    T: MakeTlsConnect<Socket, Stream: Send, TlsConnect: TlsConnect<Socket, Future: Send> + Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Opens connections by a TLS library.
pub(crate) struct TlsConnector<T>(pub(crate) T);

#[async_trait]
impl<T: Tls> PostgresConnector for TlsConnector<T> {
    async fn open(&self, config: &Config) -> Result<PostgresConnection, ConnectError> {
        let (client, connection) = config
            .connect(self.0.clone())
            .await
            .map_err(|error| of_attempt(config, error))?;
        let warned = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(drive(connection, Arc::clone(&warned)));
        Ok(PostgresConnection {
            client,
            warned,
            _task: AbortOnDropHandle::new(task),
        })
    }
}

/// Exchanges messages with the server until the connection ends. Takes note of warnings before the response of the
/// statement that they belong to.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, warned: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    warned.store(true, Ordering::SeqCst);
                }
                tracing::warn!(
                    message = notice.message(),
                    "the database server reports a problem"
                );
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to the database server has failed");
                return;
            }
        }
    }
}

impl PostgresConnection {
    /// Returns `true` if the server has warned since the last call.
    pub(crate) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }

    /// Sets the session's parameters. Refuses a server that can't write, or loses acknowledged swaps.
    async fn check(&self) -> Result<(), ConnectError> {
        self.client
            .batch_execute(SESSION)
            .await
            .map_err(of_connection)?;
        let row = self
            .client
            .query_one(
                "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
                        current_setting('synchronous_commit')",
                &[],
            )
            .await
            .map_err(of_connection)?;
        if row.get(0) {
            let text = "the server is a standby. Name the primary, or all hosts, in the URL.";
            return Err(ConnectError::new(ConnectErrorKind::Unsuitable, text));
        }
        for (column, name) in [(1, "fsync"), (2, "full_page_writes")] {
            if row.get::<_, &str>(column) != "on" {
                let text = format!(
                    "the server loses acknowledged swaps in a crash. Set {name} = on in postgresql.conf."
                );
                return Err(ConnectError::new(ConnectErrorKind::Unsuitable, text));
            }
        }
        if matches!(row.get(3), "off" | "local") {
            tracing::warn!(
                "synchronous_commit is off or local for this user: the register sets it to on for its sessions"
            );
            self.client
                .batch_execute("SET synchronous_commit = on")
                .await
                .map_err(of_connection)?;
        }
        self.take_warning();
        Ok(())
    }
}
