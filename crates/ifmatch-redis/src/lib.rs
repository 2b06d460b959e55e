//! Register on Redis 7 or Valkey, which any number of processes can share.
//!
//! Swaps are linearizable as long as one server keeps its data. With `appendonly yes` and `appendfsync always`, an
//! acknowledged swap survives a crash and a restart of that server. **A failover may lose acknowledged swaps**:
//! replicas receive changes after they're acknowledged, and neither `WAIT` nor `min-replicas-to-write` changes that. So
//! the register's guarantee is [`Guarantee::UntilFailover`].
//!
//! ```no_run
//! use ifmatch_redis::RedisRegister;
//! use ifmatch_register::Driver;
//!
//! # async fn run() -> Result<(), ifmatch_redis::ConnectError> {
//! let register = RedisRegister::connect("redis://127.0.0.1:6379").await?;
//! let driver = Driver::new(register);
//! # Ok(())
//! # }
//! ```
//!
//! # Data
//!
//! All keys begin with a prefix, by default `ifmatch:`. A record is a string: its revision as eight bytes, then its
//! encoding. A sorted set has the names of all records, in the order of their bytes. One more key has the register's
//! identity.

mod connection;
mod error;
mod identity;
mod options;
mod scripts;
mod server;

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Lanes, Scans};
use ifmatch_register::{Engine, Guarantee, Key, Register, RegisterError, Scan, Swap, async_trait};

use connection::RedisConnection;
pub use ifmatch_register::{ConnectError, ConnectErrorKind};
pub use options::Options;
use server::RedisServer;

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of records that one command lists. A longer one would keep other clients waiting.
const PAGE: usize = 256;

/// A register on Redis or Valkey.
///
/// Reconnects after a failure. An unacknowledged swap is [`Ambiguous`](ifmatch_register::RegisterErrorKind::Ambiguous), and is never
/// sent again.
#[derive(Debug)]
pub struct RedisRegister {
    lanes: Lanes,
    scans: Scans<RedisConnection>,
    server: Arc<RedisServer>,
}

impl RedisRegister {
    /// Connects to the server at `redis://[user:password@]host[:port][/database]`, or `rediss://…` with TLS.
    ///
    /// # Errors
    /// Same as [`RedisRegister::connect_with`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(Options::new(url)?).await
    }

    /// Connects to a server. Starts tasks on the current tokio runtime, which end with this value.
    ///
    /// Warns if the server doesn't sync each swap to its disk.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Unreachable`] if the server doesn't respond; [`ConnectErrorKind::Denied`] if it rejects the
    /// user or the password; [`ConnectErrorKind::Unsuitable`] if it is a replica or part of a cluster, or if it evicts
    /// keys.
    pub async fn connect_with(options: Options) -> Result<Self, ConnectError> {
        let mut lists = RedisConnection::open(options).await?;
        let swaps = [lists.another(), lists.another()];
        let loads = [lists.another(), lists.another()];
        lists.warn_if_not_durable().await;
        Ok(Self {
            lanes: Lanes::start(swaps, loads, LIMIT),
            server: Arc::clone(lists.server()),
            scans: Scans::new(lists, PAGE, LIMIT),
        })
    }
}

/// Begins an epoch after the data were restored from a backup, so versions from before count as unknown where they can be
/// probed. A restarted server begins one on its own. Returns the number of the epoch.
///
/// # Errors
/// Same as [`RedisRegister::connect_with`].
pub async fn restored(url: &str) -> Result<u64, ConnectError> {
    let server = RedisServer::new(Options::new(url)?);
    server.begin_epoch().await
}

#[async_trait]
impl Register for RedisRegister {
    /// Returns the epoch that the connections have found, and the time of the server, sampled with every load and swap.
    fn engine(&self) -> Engine {
        Engine {
            guarantee: Guarantee::UntilFailover,
            epoch: self.server.epoch(),
            fails_over: true,
            time: self.server.time(),
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
