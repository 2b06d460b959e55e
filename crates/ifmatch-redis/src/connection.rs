//! A connection that opens again when needed, and the commands on it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, Connect, Pages, QueuedSwap, Reconnecting, decode, encode};
use ifmatch_register::{
    ConnectError, ConnectErrorKind, EngineClock, EngineTime, Epoch, Key, RegisterError,
    RegisterErrorKind, Scan, Swap,
};
use ifmatch_runtime::{Clock, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError, ScriptInvocation, Value, cmd};

use crate::LIMIT;
use crate::error::{failed, refused, unexpected, unusable};
use crate::options::Options;
use crate::scripts::{IDENTIFY, LIST, OTHER_IDENTITY, SWAP};

/// Time limit for opening a connection.
const OPENING: Duration = Duration::from_secs(2);

/// A connection that opens again when needed.
#[derive(Debug)]
pub(crate) struct RedisConnection {
    open: Reconnecting<RedisServer>,
}

/// The register's place, shared by its connections.
#[derive(Debug)]
struct RedisServer {
    options: Options,
    /// The identity last seen by any connection.
    identity: Mutex<Option<Identity>>,
    clock: EngineClock,
}

/// The time of a place, and its epoch.
#[derive(Debug)]
pub(crate) struct ServerClock(Arc<RedisServer>);

impl ServerClock {
    pub(crate) fn time(&self) -> Option<EngineTime> {
        self.0.clock.time(SystemClock.now())
    }

    /// Returns the epoch that the connections have found.
    pub(crate) fn epoch(&self) -> Epoch {
        let identity = self
            .0
            .identity
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        identity
            .as_ref()
            .map_or_else(Epoch::default, Identity::epoch)
    }
}

#[derive(Clone, Debug)]
struct Open {
    connection: MultiplexedConnection,
    identity: Vec<u8>,
    /// Set at the end of the connection.
    has_ended: Arc<AtomicBool>,
}

impl RedisConnection {
    pub(crate) async fn open(options: Options) -> Result<Self, ConnectError> {
        let place = RedisServer {
            options,
            identity: Mutex::new(None),
            clock: EngineClock::default(),
        };
        let mut open = Reconnecting::new(Arc::new(place));
        let first = open.server().connect().await?;
        open.keep(first);
        Ok(Self { open })
    }

    /// Returns another connection to the same place, which opens at its first use.
    pub(crate) fn another(&self) -> Self {
        Self {
            open: Reconnecting::new(Arc::clone(self.open.server())),
        }
    }

    /// Returns the time of the server, as sampled by all connections to the place.
    pub(crate) fn clock(&self) -> ServerClock {
        ServerClock(Arc::clone(self.open.server()))
    }

    /// Begins an epoch, and returns its number.
    pub(crate) async fn begin_epoch(&mut self) -> Result<u64, ConnectError> {
        let place = Arc::clone(self.open.server());
        let mut open = place.connect().await?;
        let info: String = cmd("INFO")
            .query_async(&mut open.connection)
            .await
            .map_err(refused)?;
        let mut call = IDENTIFY.key(place.key("identity"));
        let call = call.arg("").arg(check(&info)?).arg("restored");
        let found: Option<Vec<u8>> = call
            .invoke_async(&mut open.connection)
            .await
            .map_err(refused)?;
        Ok(Identity::parse(found.ok_or_else(lost)?)?.epoch().number)
    }

    pub(crate) async fn warn_if_not_durable(&mut self) {
        let Ok(mut open) = self.open.take().await else {
            return;
        };
        for (setting, needed) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let found: Result<HashMap<String, String>, RedisError> = cmd("CONFIG")
                .arg("GET")
                .arg(setting)
                .query_async(&mut open.connection)
                .await;
            match found {
                Ok(settings) if settings.get(setting).is_some_and(|value| value == needed) => {}
                Ok(_) => tracing::warn!(
                    "the Redis server loses acknowledged swaps when it ends: set `{setting} {needed}` to prevent that"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    "the Redis server does not show its setting: make sure that it has `{setting} {needed}`"
                ),
            }
        }
        self.open.keep(open);
    }

    async fn swap_all(
        &mut self,
        batch: &[QueuedSwap],
    ) -> Result<Vec<Result<Swap, RegisterError>>, RegisterError> {
        let place = Arc::clone(self.open.server());
        let answer = self
            .script(|identity| {
                let mut call = SWAP.key(place.key("identity"));
                call.key(place.key("keys")).arg(identity);
                for QueuedSwap {
                    key,
                    expected,
                    next,
                } in batch
                {
                    let expected = Some(*expected).filter(|revision| *revision != Revision::NONE);
                    let expected = expected.map(|revision| revision.get().to_be_bytes());
                    call.key(place.record(key)).arg(key.as_str());
                    call.arg(expected.as_ref().map_or(&[][..], |bytes| bytes));
                    call.arg(next.as_ref().map(encode).unwrap_or_default());
                }
                call
            })
            .await?;
        let Value::Array(answers) = answer else {
            return Err(unexpected());
        };
        let swaps = answers.into_iter().map(|answer| match answer {
            Value::Int(1) => Ok(Swap::Done),
            Value::Nil => Ok(Swap::Conflict(None)),
            Value::BulkString(bytes) => Ok(Swap::Conflict(Some(decode(&bytes)?))),
            _ => Err(unexpected()),
        });
        Ok(swaps.collect())
    }

    /// Runs a script, which is given the identity. If that isn't the current one, connects again, and runs the script
    /// once more: nothing was changed.
    async fn script(
        &mut self,
        call: impl Fn(&[u8]) -> ScriptInvocation<'_>,
    ) -> Result<Value, RegisterError> {
        let first = self.script_once(&call).await?;
        match first {
            Ok(value) => Ok(value),
            Err(_) => self.script_once(&call).await?.map_err(failed),
        }
    }

    /// The inner error tells that the identity wasn't the current one.
    async fn script_once(
        &mut self,
        call: &impl Fn(&[u8]) -> ScriptInvocation<'_>,
    ) -> Result<Result<Value, RedisError>, RegisterError> {
        let open = self.open.take().await?;
        let mut connection = open.connection.clone();
        let call = call(&open.identity);
        match join(
            self.open.server().sample(&open),
            call.invoke_async(&mut connection),
        )
        .await
        .1
        {
            Ok(value) => {
                self.open.keep(open);
                Ok(Ok(value))
            }
            Err(error) if error.code() == Some(OTHER_IDENTITY) => Ok(Err(error)),
            Err(error) => Err(failed(error)),
        }
    }

    async fn load_once(&mut self, keys: &[Key]) -> Result<Option<Vec<Value>>, RegisterError> {
        let open = self.open.take().await?;
        let mut command = cmd("MGET");
        command.arg(self.open.server().key("identity"));
        for key in keys {
            command.arg(self.open.server().record(key));
        }
        let mut connection = open.connection.clone();
        let values = join(
            self.open.server().sample(&open),
            command.query_async(&mut connection),
        )
        .await
        .1;
        let mut values: Vec<Value> = values.map_err(failed)?;
        if !matches!(values.first(), Some(Value::BulkString(identity)) if *identity == open.identity)
        {
            return Ok(None);
        }
        self.open.keep(open);
        Ok(Some(values.split_off(1)))
    }
}

impl Pages for RedisConnection {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let place = Arc::clone(self.open.server());
        let (first, last) = bounds(scan);
        let answer = self
            .script(|identity| {
                let mut call = LIST.key(place.key("identity"));
                call.key(place.key("keys"))
                    .arg(identity)
                    .arg(&first)
                    .arg(&last)
                    .arg(scan.limit)
                    .arg(place.key("r/"));
                call
            })
            .await?;
        let Value::Array(page) = answer else {
            return Err(unexpected());
        };
        let pairs = page.chunks_exact(2).map(|pair| match pair {
            [Value::BulkString(name), Value::BulkString(bytes)] => {
                let name = str::from_utf8(name)
                    .ok()
                    .and_then(|name| Key::new(name).ok());
                Ok((name.ok_or_else(unexpected)?, decode(bytes)?))
            }
            _ => Err(unexpected()),
        });
        pairs.collect()
    }
}

impl Batches for RedisConnection {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        match self.swap_all(batch).await {
            Ok(swaps) => swaps,
            Err(error) => batch.iter().map(|_| Err(error.duplicate())).collect(),
        }
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        let values = match self.load_once(keys).await? {
            Some(values) => values,
            None => self
                .load_once(keys)
                .await?
                .ok_or(RegisterErrorKind::Unavailable)?,
        };
        let records = values.iter().map(|value| match value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => decode(bytes).map(Some),
            _ => Err(unexpected()),
        });
        records.collect()
    }
}

impl Connect for RedisServer {
    type Connection = Open;
    type Error = ConnectError;

    async fn connect(&self) -> Result<Open, ConnectError> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPENING))
            .set_response_timeout(Some(LIMIT))
            .set_push_sender(move |info: PushInfo| {
                ended.fetch_or(info.kind == PushKind::Disconnection, Ordering::AcqRel);
                Ok::<_, Infallible>(())
            });
        let mut connection = self
            .options
            .client
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .map_err(refused)?;
        let info: String = cmd("INFO")
            .query_async(&mut connection)
            .await
            .map_err(refused)?;
        let replication_id = check(&info)?;
        let identity = self.identify(&mut connection, replication_id).await?;
        let open = Open {
            connection,
            identity,
            has_ended,
        };
        self.sample(&open).await.map_err(refused)?;
        Ok(open)
    }

    /// A connection to a former primary has ended, too, once another connection has found the present one.
    fn has_ended(&self, open: &Open) -> bool {
        let known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let is_former = known
            .as_ref()
            .is_some_and(|known| known.stored() != open.identity);
        is_former || open.has_ended.load(Ordering::Acquire)
    }
}

impl RedisServer {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.options.prefix)
    }

    fn record(&self, key: &Key) -> String {
        format!("{}r/{key}", self.options.prefix)
    }

    /// Samples the server's time. Without a response, the bounds of the time widen; a call beside it has its own result.
    async fn sample(&self, open: &Open) -> Result<(), RedisError> {
        let sent = SystemClock.now();
        let (seconds, micros): (u64, u64) = cmd("TIME")
            .query_async(&mut open.connection.clone())
            .await?;
        let time = Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros));
        self.clock.sample(sent, SystemClock.now(), time);
        Ok(())
    }

    /// Returns the register's identity, as stored. Creates the register if this process hasn't seen it before.
    async fn identify(
        &self,
        connection: &mut MultiplexedConnection,
        replication_id: &str,
    ) -> Result<Vec<u8>, ConnectError> {
        let is_known = self
            .identity
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some();
        let new = ifmatch_runtime::nonce()
            .map_err(|error| unusable(ConnectErrorKind::Unsuitable, error))?;
        let new = if is_known {
            String::new()
        } else {
            format!("{new:016x}")
        };
        let mut call = IDENTIFY.key(self.key("identity"));
        let found: Option<Vec<u8>> = call
            .arg(new)
            .arg(replication_id)
            .arg("")
            .invoke_async(connection)
            .await
            .map_err(refused)?;
        let found = Identity::parse(found.ok_or_else(lost)?)?;
        let stored = found.stored().to_vec();
        match &mut *self.identity.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(known) => known.becomes(found)?,
            unknown @ None => *unknown = Some(found),
        }
        Ok(stored)
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

/// Returns the range of a listing for `ZRANGEBYLEX`.
fn bounds(scan: &Scan<'_>) -> (Vec<u8>, Vec<u8>) {
    let first = match scan.after.filter(|after| *after >= scan.prefix) {
        Some(after) => [b"(", after.as_bytes()].concat(),
        None => [b"[", scan.prefix.as_bytes()].concat(),
    };
    // The bytes after all that begin with the prefix. UTF-8 has no byte 255.
    let mut last = [b"(", scan.prefix.as_bytes()].concat();
    match last.last_mut().filter(|_| !scan.prefix.is_empty()) {
        Some(byte) => *byte += 1,
        None => last = b"+".to_vec(),
    }
    (first, last)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ifmatch_testbed::{Proxy, redis::start};

    use super::*;

    /// Redis ends idle connections by its setting `timeout`, and firewalls do so as well.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_that_ended_while_idle_is_replaced_before_the_next_call() {
        let server = start(&[]).await;
        let proxy = Proxy::start(server.address()).await;
        let options = Options::new(&server.url_at(proxy.address())).unwrap();
        let mut connection = RedisConnection::open(options).await.unwrap();
        let first = connection.open.take().await.unwrap();
        connection.open.keep(first.clone());
        proxy.redirect(server.address());
        while !connection.open.server().has_ended(&first) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        connection
            .page(&Scan {
                limit: 1,
                ..Scan::default()
            })
            .await
            .unwrap();
    }

    /// Another connection of the process has reached the server that took over. This one is still open to the former primary.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_to_a_former_primary_is_not_used_any_more() {
        let server = start(&[]).await;
        let mut connection = RedisConnection::open(Options::new(&server.url()).unwrap())
            .await
            .unwrap();
        let scan = Scan {
            limit: 1,
            ..Scan::default()
        };
        connection.page(&scan).await.unwrap();
        let place = Arc::clone(connection.open.server());
        let name = place
            .identity
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .stored()
            .split(|byte| *byte == b' ')
            .next()
            .unwrap()
            .to_vec();
        let present = Identity::parse([&name[..], b" 1 other 9"].concat()).unwrap();
        place
            .identity
            .lock()
            .unwrap()
            .as_mut()
            .unwrap()
            .becomes(present)
            .unwrap();
        let error = connection
            .page(&scan)
            .await
            .expect_err("it lacks the changes since the failover");
        assert!(error.to_string().contains("former primary"), "{error}");
        connection
            .load(&[Key::new("key").unwrap()])
            .await
            .expect_err("as a scan");
    }
}

/// `name epoch replication-id lost`, as stored. The server has a new replication id after a restart and after a failover;
/// revisions up to `lost` may have been lost then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    stored: Vec<u8>,
    name: String,
    epoch: Epoch,
}

impl Identity {
    pub(crate) fn parse(stored: Vec<u8>) -> Result<Self, ConnectError> {
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut words = text.split(' ');
        let (name, number) = (
            words.next().unwrap_or_default(),
            words.next().and_then(|number| number.parse().ok()),
        );
        let Some(number) = number else {
            return Err(unusable(
                ConnectErrorKind::Unsuitable,
                "its keys belong to another program",
            ));
        };
        // There is none before the first failover.
        let lost = words
            .nth(1)
            .and_then(|lost| lost.parse().ok())
            .map_or(Revision::NONE, Revision::new);
        Ok(Self {
            name: name.to_owned(),
            epoch: Epoch { number, lost },
            stored,
        })
    }

    /// Returns the epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the stored text, which batches name.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Accepts the identity found by a new connection in place of this one.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Lost`] if it is another register, and [`ConnectErrorKind::Unsuitable`] if it is from before a
    /// failover.
    pub(crate) fn becomes(&mut self, found: Self) -> Result<(), ConnectError> {
        if found.name != self.name {
            return Err(lost());
        }
        if found.epoch < self.epoch {
            let reason = "it is a former primary. Stop it, or make it a replica";
            return Err(unusable(ConnectErrorKind::Unsuitable, reason));
        }
        if found.epoch > self.epoch {
            tracing::warn!(
                epoch = found.epoch.number,
                "the Redis server was restarted or replaced: a failover may have lost acknowledged swaps; earlier versions \
                 of resources that can be probed count as unknown"
            );
        }
        *self = found;
        Ok(())
    }
}

pub(crate) fn lost() -> ConnectError {
    let advice = "it was emptied or replaced. Restore its data, or restart all ifmatch processes to start with an empty \
                  register";
    unusable(ConnectErrorKind::Lost, advice)
}
