//! Register in PostgreSQL, which any number of processes can share.
//!
//! [`migrate`] creates the tables. [`PostgresRegister::connect`] only needs `SELECT`, `INSERT`, `UPDATE` and `DELETE`
//! on `ifmatch_records`, `SELECT` and `UPDATE` on `ifmatch_epoch`, and `SELECT` on `ifmatch_schema`.
//!
//! ```no_run
//! use ifmatch_postgres::PostgresRegister;
//! use ifmatch_register::Driver;
//!
//! # async fn run() -> Result<(), ifmatch_postgres::ConnectError> {
//! let register = PostgresRegister::connect("postgres://ifmatch@db.example/app?sslmode=verify-full").await?;
//! let driver = Driver::new(register);
//! # Ok(())
//! # }
//! ```
//!
//! # The URL
//!
//! `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST…]/DATABASE[?OPTION=VALUE…]`, with the options of libpq that
//! `tokio_postgres::Config` knows, and `sslmode` and `sslrootcert`. If there are several hosts, the register uses the
//! primary, or the latest one if a former primary wasn't stopped. Prefer to put the password in `PGPASSWORD` or in the
//! file `PGPASSFILE` (by default `~/.pgpass`, and on Windows `%APPDATA%\postgresql\pgpass.conf`).
//!
//! | `sslmode` | connection |
//! |---|---|
//! | `disable` | not encrypted: the default for sockets and for loopback addresses |
//! | `require`, `verify-ca`, `verify-full` | encrypted, with a certificate for the host by an authority in the file `sslrootcert`, or by one that the system trusts: the default for other hosts |
//!
//! # Connections
//!
//! Each register has four connections, two for swaps and one each for loads and scans. It uses prepared statements,
//! which poolers that switch connections between transactions break. Failed connections are replaced; after three
//! failures in a row, calls fail at once until a probe, every 250 ms, has succeeded.

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod epoch;
mod error;
mod lane;
mod passwords;
mod platform;
mod schema;
mod settings;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Lanes, Scans};
use ifmatch_register::{Engine, Guarantee, Key, Register, RegisterError, Scan, Swap, async_trait};
use tokio_postgres::Config;

pub use connection::Tls;
pub use epoch::restored;
pub use ifmatch_register::{ConnectError, ConnectErrorKind};
pub use schema::{migrate, migrate_with};

use connection::{PostgresConnection, answered};
use lane::{ConnectionLane, PostgresServer};
use settings::ConnectionSettings;

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a statement, after which its connection is replaced. Shorter than a call's, so the call ends
/// with the error of its statement.
const STATEMENT_LIMIT: Duration = Duration::from_millis(4_500);
/// Maximum number of records that one statement lists.
const PAGE: usize = 1_000;

/// Register in PostgreSQL.
pub struct PostgresRegister {
    server: Arc<PostgresServer>,
    lanes: Lanes,
    scans: Scans<ConnectionLane>,
}

impl PostgresRegister {
    /// Connects to a server with the tables of [`migrate`].
    ///
    /// # Errors
    /// [`ConnectErrorKind`] has the reasons; the message says what to do, and contains no password.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let settings = ConnectionSettings::parse(url)?;
        let first = epoch::connect_to_latest(url, &settings).await?;
        Self::open(settings, first).await
    }

    /// Connects with the settings and TLS of the service's own pool. With `NoTls`, the feature `tls` isn't needed.
    ///
    /// The register opens its own four connections, so it never waits for the service's transactions. For sqlx, use
    /// [`connect`](Self::connect) with the URL of `pool.connect_options().to_url_lossy()`.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let settings: tokio_postgres::Config = "host=db.internal user=notes dbname=notes".parse()?;
    /// // let pool = deadpool_postgres::Manager::new(settings.clone(), NoTls) …
    /// ifmatch_postgres::migrate_with(settings.clone(), tokio_postgres::NoTls).await?; // once
    /// let register = ifmatch_postgres::PostgresRegister::connect_with(settings, tokio_postgres::NoTls).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect). Several hosts are [`ConnectErrorKind::Unsuitable`].
    pub async fn connect_with(config: Config, tls: impl Tls) -> Result<Self, ConnectError> {
        let settings = ConnectionSettings::of_service(config, tls)?;
        let first = settings.connect().await?;
        Self::open(settings, first).await
    }

    /// Opens the register with its first connection.
    async fn open(
        settings: ConnectionSettings,
        first: PostgresConnection,
    ) -> Result<Self, ConnectError> {
        let lists = answered(async {
            first.warn_of_asynchronous_standbys().await?;
            ConnectionLane::open(PostgresServer::new(settings), first).await
        });
        let lists = lists.await?;
        let lanes = Lanes::start([lists.another(), lists.another()], [lists.another()], LIMIT);
        Ok(Self {
            server: lists.server(),
            lanes,
            scans: Scans::new(lists, PAGE, LIMIT),
        })
    }
}

impl fmt::Debug for PostgresRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresRegister")
    }
}

#[async_trait]
impl Register for PostgresRegister {
    /// Returns the epoch that the connections have found, and the time of the server, sampled with every load and swap.
    fn engine(&self) -> Engine {
        let (epoch, time) = (self.server.epoch(), self.server.time());
        Engine {
            guarantee: Guarantee::Linearizable,
            epoch,
            fails_over: true,
            time,
        }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.lanes.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.lanes.swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.scans.scan(scan).await
    }
}
