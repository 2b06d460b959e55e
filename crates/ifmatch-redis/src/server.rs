//! The server: connects, checks that it can hold the register, and samples its time.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_register::lanes::Connect;
use ifmatch_register::{ConnectError, ConnectErrorKind, EngineClock, EngineTime, Epoch, Key};
use ifmatch_runtime::{Clock, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, cmd};

use crate::LIMIT;
use crate::error::{refused, unusable};
use crate::identity::{Identity, lost};
use crate::options::Options;
use crate::scripts::IDENTIFY;

/// Time limit for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// The key of the identity.
pub(crate) const IDENTITY: &str = "identity";
/// The key of the sorted set with the names of all records.
pub(crate) const NAMES: &str = "keys";
/// Prefix of the keys of records.
pub(crate) const RECORDS: &str = "r/";

/// A server, shared by the register's connections.
#[derive(Debug)]
pub(crate) struct RedisServer {
    options: Options,
    /// The identity last seen by any connection.
    identity: Mutex<Option<Identity>>,
    clock: EngineClock,
}

/// An open connection, and the identity that it has found.
#[derive(Clone, Debug)]
pub(crate) struct OpenConnection {
    pub(crate) redis: MultiplexedConnection,
    pub(crate) identity: Vec<u8>,
    /// Set at the end of the connection.
    has_ended: Arc<AtomicBool>,
}

impl RedisServer {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            identity: Mutex::new(None),
            clock: EngineClock::default(),
        }
    }

    /// Returns the name of one of the register's own keys.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.options.prefix)
    }

    /// Returns the name of a record's key.
    pub(crate) fn record(&self, key: &Key) -> String {
        format!("{}{RECORDS}{key}", self.options.prefix)
    }

    /// Returns the server's time, as all connections have sampled it.
    pub(crate) fn time(&self) -> Option<EngineTime> {
        self.clock.time(SystemClock.now())
    }

    /// Returns the epoch that the connections have found.
    pub(crate) fn epoch(&self) -> Epoch {
        self.known()
            .as_ref()
            .map_or_else(Epoch::default, Identity::epoch)
    }

    /// Samples the server's time. Without a response, the bounds of the time widen; a call beside it has its own result.
    pub(crate) async fn sample(&self, open: &OpenConnection) -> Result<(), RedisError> {
        let sent = SystemClock.now();
        let mut redis = open.redis.clone();
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut redis).await?;
        let time = Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros));
        self.clock.sample(sent, SystemClock.now(), time);
        Ok(())
    }

    /// Begins an epoch after a restored backup, and returns its number.
    pub(crate) async fn begin_epoch(&self) -> Result<u64, ConnectError> {
        let mut redis = self.connect().await?.redis;
        let info: String = cmd("INFO").query_async(&mut redis).await.map_err(refused)?;
        let found = self
            .identify(&mut redis, "", check(&info)?, "restored")
            .await?;
        Ok(found.epoch().number)
    }

    /// Returns the identity as stored. Creates the register, with the identity `new`, if there is none and `new` isn't
    /// empty.
    async fn identify(
        &self,
        redis: &mut MultiplexedConnection,
        new: &str,
        replication_id: &str,
        restored: &str,
    ) -> Result<Identity, ConnectError> {
        let mut call = IDENTIFY.key(self.key(IDENTITY));
        call.arg(new).arg(replication_id).arg(restored);
        let found: Option<Vec<u8>> = call.invoke_async(redis).await.map_err(refused)?;
        Identity::parse(found.ok_or_else(lost)?)
    }

    /// Locks the identity last seen.
    fn known(&self) -> MutexGuard<'_, Option<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connect for RedisServer {
    type Connection = OpenConnection;
    type Error = ConnectError;

    /// Connects, and creates the register if this process hasn't seen it before.
    async fn connect(&self) -> Result<OpenConnection, ConnectError> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(LIMIT))
            .set_push_sender(move |info: PushInfo| {
                ended.fetch_or(info.kind == PushKind::Disconnection, Ordering::AcqRel);
                Ok::<_, Infallible>(())
            });
        let client = &self.options.client;
        let redis = client
            .get_multiplexed_async_connection_with_config(&settings)
            .await;
        let mut redis = redis.map_err(refused)?;
        let info: String = cmd("INFO").query_async(&mut redis).await.map_err(refused)?;
        let replication_id = check(&info)?;
        let new = ifmatch_runtime::nonce()
            .map_err(|error| unusable(ConnectErrorKind::Unsuitable, error))?;
        let new = match *self.known() {
            Some(_) => String::new(),
            None => format!("{new:016x}"),
        };
        let found = self.identify(&mut redis, &new, replication_id, "").await?;
        let open = OpenConnection {
            redis,
            identity: found.stored().to_vec(),
            has_ended,
        };
        match &mut *self.known() {
            Some(known) => known.becomes(found)?,
            unknown @ None => *unknown = Some(found),
        }
        self.sample(&open).await.map_err(refused)?;
        Ok(open)
    }

    /// A connection to a former primary has ended, too, once another connection has found the present one.
    fn has_ended(&self, open: &OpenConnection) -> bool {
        let known = self.known();
        let is_former = known
            .as_ref()
            .is_some_and(|known| known.stored() != open.identity);
        is_former || open.has_ended.load(Ordering::Acquire)
    }
}

/// Checks that a server can hold a register, and returns its replication id.
fn check(info: &str) -> Result<&str, ConnectError> {
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let unsuitable = |reason: &str| Err(unusable(ConnectErrorKind::Unsuitable, reason));
    if field("role") != Some("master") {
        return unsuitable("it is a replica. Use the address of the primary");
    }
    if field("cluster_enabled") == Some("1") {
        return unsuitable("it is part of a cluster. Use a separate server for each register");
    }
    if field("maxmemory_policy").is_some_and(|policy| policy.starts_with("allkeys")) {
        return unsuitable("it evicts records. Set `maxmemory-policy noeviction`");
    }
    match field("master_replid") {
        Some(id) => Ok(id),
        None => unsuitable("it states no replication id. Use Redis 7 or Valkey"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
impl RedisServer {
    /// Behaves as if another connection had found the server that took over.
    pub(crate) fn assume_failover(&self) {
        let mut known = self.known();
        let known = known.as_mut().unwrap();
        let name = String::from_utf8_lossy(known.stored())
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        let present = Identity::parse(format!("{name} 1 other 9").into_bytes()).unwrap();
        known.becomes(present).unwrap();
    }
}
