//! A connection that opens again when needed, and the register's commands on it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, Connect, Pages, QueuedSwap, Reconnecting, decode, encode};
use ifmatch_register::{ConnectError, Key, RegisterError, RegisterErrorKind, Scan, Swap};
use redis::{RedisError, ScriptInvocation, Value, cmd};

use crate::error::{failed, unexpected};
use crate::options::Options;
use crate::scripts::{LIST, OTHER_IDENTITY, SWAP};
use crate::server::{IDENTITY, NAMES, RECORDS, RedisServer};

/// A connection that opens again when needed.
#[derive(Debug)]
pub(crate) struct RedisConnection {
    open: Reconnecting<RedisServer>,
}

impl RedisConnection {
    /// Connects to a server.
    pub(crate) async fn open(options: Options) -> Result<Self, ConnectError> {
        let mut open = Reconnecting::new(Arc::new(RedisServer::new(options)));
        let first = open.server().connect().await?;
        open.keep(first);
        Ok(Self { open })
    }

    /// Returns another connection to the same server, which opens at its first use.
    pub(crate) fn another(&self) -> Self {
        Self {
            open: Reconnecting::new(Arc::clone(self.server())),
        }
    }

    /// Returns the server, which all connections share.
    pub(crate) fn server(&self) -> &Arc<RedisServer> {
        self.open.server()
    }

    /// Warns if the server doesn't sync each swap to its disk.
    pub(crate) async fn warn_if_not_durable(&mut self) {
        let Ok(open) = self.open.take().await else {
            return;
        };
        let mut redis = open.redis.clone();
        for (setting, needed) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let mut command = cmd("CONFIG");
            command.arg("GET").arg(setting);
            match command
                .query_async::<HashMap<String, String>>(&mut redis)
                .await
            {
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

    /// Carries out the swaps in one run of a script.
    async fn swap_all(
        &mut self,
        batch: &[QueuedSwap],
    ) -> Result<Vec<Result<Swap, RegisterError>>, RegisterError> {
        let server = Arc::clone(self.server());
        let script = self.script(|identity| {
            let mut call = SWAP.key(server.key(IDENTITY));
            call.key(server.key(NAMES)).arg(identity);
            for swap in batch {
                call.key(server.record(&swap.key)).arg(swap.key.as_str());
                match swap.expected {
                    Revision::NONE => call.arg(""),
                    expected => call.arg(&expected.get().to_be_bytes()),
                };
                call.arg(swap.next.as_ref().map(encode).unwrap_or_default());
            }
            call
        });
        let Value::Array(answers) = script.await? else {
            return Err(unexpected());
        };
        let swaps = answers.iter().map(|answer| match answer {
            Value::Int(1) => Ok(Swap::Done),
            record => Ok(Swap::Conflict(stored_record(record)?)),
        });
        Ok(swaps.collect())
    }

    /// Runs a script, which is given the identity. If that isn't the current one, connects again, and runs the script
    /// once more: nothing was changed.
    async fn script(
        &mut self,
        call: impl Fn(&[u8]) -> ScriptInvocation<'_>,
    ) -> Result<Value, RegisterError> {
        match self.script_once(&call).await? {
            Ok(value) => Ok(value),
            Err(_) => self.script_once(&call).await?.map_err(failed),
        }
    }

    /// Runs a script once. The inner error tells that the identity wasn't the current one.
    async fn script_once(
        &mut self,
        call: &impl Fn(&[u8]) -> ScriptInvocation<'_>,
    ) -> Result<Result<Value, RedisError>, RegisterError> {
        let open = self.open.take().await?;
        let mut redis = open.redis.clone();
        let call = call(&open.identity);
        let (_, result) = join(self.server().sample(&open), call.invoke_async(&mut redis)).await;
        match result {
            Ok(value) => {
                self.open.keep(open);
                Ok(Ok(value))
            }
            Err(error) if error.code() == Some(OTHER_IDENTITY) => Ok(Err(error)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Loads values once. Returns `None` if the identity isn't the current one.
    async fn load_once(&mut self, keys: &[Key]) -> Result<Option<Vec<Value>>, RegisterError> {
        let open = self.open.take().await?;
        let mut command = cmd("MGET");
        command.arg(self.server().key(IDENTITY));
        for key in keys {
            command.arg(self.server().record(key));
        }
        let mut redis = open.redis.clone();
        let (_, values) = join(self.server().sample(&open), command.query_async(&mut redis)).await;
        let mut values: Vec<Value> = values.map_err(failed)?;
        match values.first() {
            Some(Value::BulkString(identity)) if *identity == open.identity => {
                self.open.keep(open);
                Ok(Some(values.split_off(1)))
            }
            _ => Ok(None),
        }
    }
}

impl Pages for RedisConnection {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let server = Arc::clone(self.server());
        let (first, last) = bounds(scan);
        let script = self.script(|identity| {
            let mut call = LIST.key(server.key(IDENTITY));
            call.key(server.key(NAMES)).arg(identity);
            call.arg(&first).arg(&last).arg(scan.limit);
            call.arg(server.key(RECORDS));
            call
        });
        let Value::Array(page) = script.await? else {
            return Err(unexpected());
        };
        let pairs = page.chunks_exact(2).map(|pair| match pair {
            [Value::BulkString(name), Value::BulkString(bytes)] => {
                let name = str::from_utf8(name).ok();
                let key = name.and_then(|name| Key::new(name).ok());
                Ok((key.ok_or_else(unexpected)?, decode(bytes)?))
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
        values.iter().map(stored_record).collect()
    }
}

/// Reads the record in a value.
fn stored_record(value: &Value) -> Result<Option<Record>, RegisterError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => decode(bytes).map(Some),
        _ => Err(unexpected()),
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
    use std::time::Duration;

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
        while !connection.server().has_ended(&first) {
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
        connection.server().assume_failover();
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
