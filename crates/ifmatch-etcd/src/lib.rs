//! Register on etcd, which any number of processes can share.
//!
//! An acknowledged swap is on a majority of the members, so it survives the loss of any minority. All loads and scans
//! are linearizable.
//!
//! ```no_run
//! use ifmatch_etcd::EtcdRegister;
//! use ifmatch_register::Driver;
//!
//! # async fn run() -> Result<(), ifmatch_etcd::ConnectError> {
//! let register = EtcdRegister::connect("etcd://10.0.0.1,10.0.0.2,10.0.0.3/notes").await?;
//! let driver = Driver::new(register);
//! # Ok(())
//! # }
//! ```
//!
//! # Data
//!
//! All keys begin with a prefix, by default `ifmatch/`. A value is the record's revision as eight bytes, then its encoding.
//! A swap expects a value between two revisions, so it needs no load before it, and no knowledge of etcd's own revisions.
//! Earlier values are never read: let the servers compact them (`--auto-compaction-retention`).

mod address;
mod cluster;
mod connection;
mod connector;
mod error;
mod requests;
mod rpc;

use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Lanes, Scans};
use ifmatch_register::{Engine, Key, PeerClocks, Register, RegisterError, Scan, Swap, async_trait};
use ifmatch_runtime::{Clock, SystemClock};

pub use address::Address;
use connection::EtcdConnection;
pub use ifmatch_register::{ConnectError, ConnectErrorKind};

/// Time limit of a request to a member.
const LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a call, which may take two requests.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of records that one request lists.
const PAGE: usize = 256;

/// A register on etcd.
///
/// Reconnects to the next member after a failure. An unacknowledged swap is
/// [`Ambiguous`](ifmatch_register::RegisterErrorKind::Ambiguous), and is never sent again.
#[derive(Debug)]
pub struct EtcdRegister {
    lanes: Lanes,
    scans: Scans<EtcdConnection>,
    peers: PeerClocks,
}

impl EtcdRegister {
    /// Connects to the members at `etcd://[user:password@]host[:port][,host[:port]…][/prefix]`, or `etcds://…` with TLS.
    ///
    /// # Errors
    /// Same as [`EtcdRegister::connect_to`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_to(url.parse()?).await
    }

    /// Connects to a cluster. Starts tasks on the current tokio runtime, which end with this value.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Unreachable`] if no member responds; [`ConnectErrorKind::Denied`] if they reject the user or
    /// the password.
    pub async fn connect_to(address: Address) -> Result<Self, ConnectError> {
        let lists = EtcdConnection::open(address).await?;
        let swaps = [lists.another(), lists.another()];
        let loads = [lists.another(), lists.another()];
        Ok(Self {
            lanes: Lanes::start(swaps, loads, CALL_LIMIT),
            scans: Scans::new(lists, PAGE, CALL_LIMIT),
            peers: PeerClocks::default(),
        })
    }

    /// Compares the clock of a record's writer with this process's.
    fn saw(&self, key: &Key, found: Option<&Record>) {
        let saw = |record| self.peers.saw(key, record, SystemClock.now());
        if let Some(ahead) = found.and_then(saw) {
            tracing::warn!("{ahead}");
        }
    }
}

#[async_trait]
impl Register for EtcdRegister {
    /// The processes that share the register have another time, if that's known: etcd has none.
    fn engine(&self) -> Engine {
        Engine {
            time: self.peers.time(SystemClock.now()),
            ..Engine::default()
        }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let found = self.lanes.load(key).await?;
        self.saw(key, found.as_ref());
        Ok(found)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let swap = self.lanes.swap(key, expected, next).await?;
        if let Swap::Conflict(found) = &swap {
            self.saw(key, found.as_ref());
        }
        Ok(swap)
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.scans.scan(scan).await
    }
}
