//! The tables and their version.

use ifmatch_register::{ConnectError, ConnectErrorKind};
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use crate::connection::{PostgresConnection, Tls};
use crate::epoch::KnownEpoch;
use crate::error::of_connection;
use crate::settings::ConnectionSettings;

/// The version of the tables.
const VERSION: i32 = 2;

/// Key of the advisory lock that keeps migrations apart: "ifmatch" in ASCII.
const LOCK: i64 = 0x69_66_6d_61_74_63_68;

/// The statements that lead to each version from the one before.
///
/// Keys are bytes, so their order, and the texts that they may contain, don't depend on the database's encoding and
/// collation. A page keeps room for new versions of its rows, which then need no change of the index.
const MIGRATIONS: [&str; VERSION as usize] = [
    "CREATE TABLE ifmatch_records (key bytea PRIMARY KEY, revision bigint NOT NULL, record bytea NOT NULL)
        WITH (fillfactor = 70);",
    // One row: see the module `epoch`.
    "CREATE TABLE ifmatch_epoch (number bigint NOT NULL, lost bigint NOT NULL, timeline text NOT NULL);
    INSERT INTO ifmatch_epoch VALUES (0, 0, '');",
];

/// Creates or updates the tables `ifmatch_records`, `ifmatch_epoch` and `ifmatch_schema` in the first schema of the search path.
/// Concurrent calls wait for each other, and later ones change nothing. Stop processes of earlier releases first only if the
/// change log says so.
///
/// # Errors
/// Same as [`PostgresRegister::connect`](crate::PostgresRegister::connect).
pub async fn migrate(url: &str) -> Result<(), ConnectError> {
    migrate_at(&ConnectionSettings::parse(url)?).await
}

/// Does the same as [`migrate`], with the service's settings and TLS.
///
/// # Errors
/// Same as [`PostgresRegister::connect_with`](crate::PostgresRegister::connect_with).
pub async fn migrate_with(config: Config, tls: impl Tls) -> Result<(), ConnectError> {
    migrate_at(&ConnectionSettings::of_service(config, tls)?).await
}

/// Connects, and creates or updates the tables.
async fn migrate_at(settings: &ConnectionSettings) -> Result<(), ConnectError> {
    let mut connection = settings.connect().await?;
    let transaction = connection
        .client
        .transaction()
        .await
        .map_err(of_connection)?;
    // Another migration may take longer than a statement of the register may wait.
    transaction
        .batch_execute("SET LOCAL lock_timeout = 0")
        .await
        .map_err(of_connection)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map_err(of_connection)?;
    transaction
        .batch_execute("CREATE TABLE IF NOT EXISTS ifmatch_schema (version integer NOT NULL)")
        .await
        .map_err(of_connection)?;
    let found = transaction
        .query_opt("SELECT max(version) FROM ifmatch_schema", &[])
        .await
        .map_err(of_connection)?;
    let found = found
        .and_then(|row| row.get::<_, Option<i32>>(0))
        .unwrap_or_default();
    if found > VERSION {
        return Err(newer(found));
    }
    let done = usize::try_from(found).unwrap_or_default();
    for statements in &MIGRATIONS[done..] {
        transaction
            .batch_execute(statements)
            .await
            .map_err(of_connection)?;
    }
    if found < VERSION {
        transaction
            .execute("DELETE FROM ifmatch_schema", &[])
            .await
            .map_err(of_connection)?;
        transaction
            .execute("INSERT INTO ifmatch_schema VALUES ($1)", &[&VERSION])
            .await
            .map_err(of_connection)?;
    }
    transaction.commit().await.map_err(of_connection)?;
    connection
        .check_epoch(&KnownEpoch::default())
        .await
        .map(drop)
}

impl PostgresConnection {
    /// Checks that the tables are this release's.
    pub(crate) async fn check_schema(&self) -> Result<(), ConnectError> {
        let missing = || {
            let text = "the database has no register. Create it with `ifmatch register migrate --register URL`, or with \
                        ifmatch_postgres::migrate";
            ConnectError::new(ConnectErrorKind::Schema, text)
        };
        let row = match self
            .client
            .query_opt("SELECT max(version) FROM ifmatch_schema", &[])
            .await
        {
            Ok(row) => row,
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => return Err(missing()),
            Err(error) => return Err(of_connection(error)),
        };
        match row.and_then(|row| row.get::<_, Option<i32>>(0)) {
            None => Err(missing()),
            Some(VERSION) => Ok(()),
            Some(found) if found > VERSION => Err(newer(found)),
            Some(found) => {
                let text = format!(
                    "the register has version {found}, but this release needs {VERSION}. Run `ifmatch register migrate --register \
                     URL`"
                );
                Err(ConnectError::new(ConnectErrorKind::Schema, text))
            }
        }
    }
}

/// Returns the error for tables of a later release.
fn newer(found: i32) -> ConnectError {
    let text = format!(
        "the register has version {found}, but this release knows only {VERSION}: upgrade ifmatch"
    );
    ConnectError::new(ConnectErrorKind::Schema, text)
}
