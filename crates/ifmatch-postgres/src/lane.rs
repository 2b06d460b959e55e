//! The statements of a lane, on a connection that is replaced when it fails.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{join, join3};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, Connect, Pages, QueuedSwap, Reconnecting};
use ifmatch_register::{
    ConnectError, EngineClock, EngineTime, Epoch, Key, RegisterError, RegisterErrorKind, Scan, Swap,
};
use ifmatch_runtime::{Clock, SystemClock};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use crate::STATEMENT_LIMIT;
use crate::connection::{PostgresConnection, answered};
use crate::epoch::KnownEpoch;
use crate::error::{is_lock, of_connection, of_statement};
use crate::settings::ConnectionSettings;

/// Creates records. Returns the keys of those that weren't there.
const INSERT: &str = "
    INSERT INTO ifmatch_records SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])
    ON CONFLICT DO NOTHING RETURNING key";
/// Replaces records. Returns the keys of those that had the expected revision.
const UPDATE: &str = "
    UPDATE ifmatch_records AS r SET revision = n.revision, record = n.record
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[]) AS n (key, revision, record, expected)
    WHERE r.key = n.key AND r.revision = n.expected RETURNING r.key";
/// Removes records. Returns the keys of those that had the expected revision.
const DELETE: &str = "
    DELETE FROM ifmatch_records AS r USING unnest($1::bytea[], $2::bigint[]) AS n (key, expected)
    WHERE r.key = n.key AND r.revision = n.expected RETURNING r.key";
const LOAD: &str = "SELECT key, record FROM ifmatch_records WHERE key = ANY($1::bytea[])";
/// The server's time, in microseconds since 1970.
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const SCAN: &str = "
    SELECT key, record FROM ifmatch_records WHERE key > $1 AND key >= $2 AND key < $3 ORDER BY key LIMIT $4";

/// The server, and what its connections have found.
pub(crate) struct PostgresServer {
    settings: ConnectionSettings,
    clock: EngineClock,
    epoch: KnownEpoch,
}

/// A connection with its prepared statements.
pub(crate) struct PreparedConnection {
    connection: PostgresConnection,
    /// The epoch of the server.
    epoch: Epoch,
    insert: Statement,
    update: Statement,
    delete: Statement,
    load: Statement,
    scan: Statement,
    time: Statement,
}

/// The connection of a lane.
pub(crate) struct ConnectionLane(Reconnecting<PostgresServer>);

impl PostgresServer {
    pub(crate) fn new(settings: ConnectionSettings) -> Self {
        Self {
            settings,
            clock: EngineClock::default(),
            epoch: KnownEpoch::default(),
        }
    }

    /// Returns the time of the server, as sampled by all connections.
    pub(crate) fn time(&self) -> Option<EngineTime> {
        self.clock.time(SystemClock.now())
    }

    /// Returns the epoch that the connections have found.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// Checks the tables and the epoch. A later release may have changed the tables since the last connection.
    async fn prepare(
        &self,
        connection: PostgresConnection,
    ) -> Result<PreparedConnection, ConnectError> {
        connection.check_schema().await?;
        let epoch = connection.check_epoch(&self.epoch).await?;
        let prepare =
            async |text: &str| connection.client.prepare(text).await.map_err(of_connection);
        let (insert, update, delete) = (
            prepare(INSERT).await?,
            prepare(UPDATE).await?,
            prepare(DELETE).await?,
        );
        let (load, time) = (prepare(LOAD).await?, prepare(TIME).await?);
        let scan = connection
            .client
            .prepare_typed(SCAN, &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8])
            .await;
        let scan = scan.map_err(of_connection)?;
        Ok(PreparedConnection {
            connection,
            epoch,
            insert,
            update,
            delete,
            load,
            scan,
            time,
        })
    }
}

impl Connect for PostgresServer {
    type Connection = PreparedConnection;
    type Error = ConnectError;

    async fn connect(&self) -> Result<PreparedConnection, ConnectError> {
        let connection = self.settings.connect().await?;
        answered(self.prepare(connection)).await
    }

    /// A connection to a former primary has ended, too, once another connection has found the present one.
    fn has_ended(&self, prepared: &PreparedConnection) -> bool {
        prepared.connection.client.is_closed() || prepared.epoch < self.epoch()
    }
}

impl ConnectionLane {
    /// Creates a lane with a connection that is already open.
    pub(crate) async fn open(
        server: PostgresServer,
        connection: PostgresConnection,
    ) -> Result<Self, ConnectError> {
        let prepared = server.prepare(connection).await?;
        prepared
            .sample(&server.clock)
            .await
            .map_err(of_connection)?;
        let mut open = Reconnecting::new(Arc::new(server));
        open.keep(prepared);
        Ok(Self(open))
    }

    /// Returns another lane to the same server, which connects at its first use.
    pub(crate) fn another(&self) -> Self {
        Self(Reconnecting::new(self.server()))
    }

    /// Returns the server.
    pub(crate) fn server(&self) -> Arc<PostgresServer> {
        Arc::clone(self.0.server())
    }

    /// Runs statements within the time limit, and samples the server's time along with them. Without a response, or if the
    /// result is ambiguous, the connection is replaced: the server isn't asked to cancel anything.
    async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&PreparedConnection) -> T,
        is_ambiguous: impl FnOnce(&T) -> bool,
    ) -> Result<T, RegisterError> {
        let prepared = self.0.take().await?;
        // The sample is first in the pipeline, and isn't delayed by the work.
        // Without one, the bounds of the time widen; the work has its own result.
        let both = join(prepared.sample(&self.0.server().clock), work(&prepared));
        let (_, result) = tokio::time::timeout(STATEMENT_LIMIT, both)
            .await
            .map_err(|_| {
                let text = format!(
                    "the database server has not answered within {} ms",
                    STATEMENT_LIMIT.as_millis()
                );
                RegisterError::new(RegisterErrorKind::Ambiguous, text)
            })?;
        if !is_ambiguous(&result) {
            self.0.keep(prepared);
        }
        Ok(result)
    }
}

impl Pages for ConnectionLane {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let after = scan.after.unwrap_or_default().as_bytes();
        let (prefix, end) = (scan.prefix.as_bytes(), end_of(scan.prefix.as_bytes()));
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let page = async |prepared: &PreparedConnection| {
            let rows = prepared
                .connection
                .client
                .query(&prepared.scan, &[&after, &prefix, &end, &limit])
                .await;
            rows.map_err(|error| of_statement(&error))?
                .iter()
                .map(entry)
                .collect()
        };
        self.run(page, is_ambiguous).await?
    }
}

/// Returns the first bytes after all those with a prefix. No key contains the byte 255, which UTF-8 doesn't have.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(u8::MAX),
    }
    end
}

impl Batches for ConnectionLane {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        let mut sorted: Vec<&QueuedSwap> = batch.iter().collect();
        // Batches of several processes create rows in the same order. The server may lock the rows to change or remove in any
        // order, so these can deadlock: `PreparedConnection::part` then tries each swap on its own.
        sorted.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        let swap = async |prepared: &PreparedConnection| prepared.swap(&sorted).await;
        let mut results = match self
            .run(swap, |results| results.values().any(is_ambiguous))
            .await
        {
            Ok(results) => results,
            Err(error) => return batch.iter().map(|_| Err(error.duplicate())).collect(),
        };
        let missing = || Err(RegisterErrorKind::Ambiguous.into());
        batch
            .iter()
            .map(|swap| results.remove(&swap.key).unwrap_or_else(missing))
            .collect()
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        let found = self
            .run(
                async |prepared: &PreparedConnection| prepared.load(keys.iter()).await,
                is_ambiguous,
            )
            .await??;
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

/// The result of each swap of a batch.
type Results = HashMap<Key, Result<Swap, RegisterError>>;

impl PreparedConnection {
    /// Samples the server's time.
    async fn sample(&self, clock: &EngineClock) -> Result<(), tokio_postgres::Error> {
        let sent = SystemClock.now();
        let row = self.connection.client.query_one(&self.time, &[]).await?;
        let micros: i64 = row.get(0);
        clock.sample(
            sent,
            SystemClock.now(),
            Timestamp::from_micros(micros.cast_unsigned()),
        );
        Ok(())
    }

    /// Carries out the swaps: creations, changes and removals in a statement each.
    async fn swap(&self, batch: &[&QueuedSwap]) -> Results {
        let part = |wanted: fn(&QueuedSwap) -> bool| -> Vec<&QueuedSwap> {
            batch.iter().copied().filter(|swap| wanted(swap)).collect()
        };
        let creations = part(|swap| swap.next.is_some() && swap.expected == Revision::NONE);
        let changes = part(|swap| swap.next.is_some() && swap.expected != Revision::NONE);
        let removals = part(|swap| swap.next.is_none());
        let parts = join3(
            self.part(&creations),
            self.part(&changes),
            self.part(&removals),
        )
        .await;
        let mut results = parts.0;
        results.extend(parts.1);
        results.extend(parts.2);
        if self.connection.take_warning() {
            // A wait for a synchronous standby has ended early: the changes are visible, but may not be replicated.
            for result in results
                .values_mut()
                .filter(|result| matches!(result, Ok(Swap::Done)))
            {
                let text = "the database server may not have replicated the change";
                *result = Err(RegisterError::new(RegisterErrorKind::Ambiguous, text));
            }
        }
        self.find_conflicts(&mut results).await;
        results
    }

    /// Carries out swaps of one kind. If other transactions hold locks, tries each swap on its own.
    async fn part(&self, swaps: &[&QueuedSwap]) -> Results {
        match self.execute(swaps).await {
            Ok(results) => results,
            Err(error) if is_lock(&error) && swaps.len() > 1 => {
                let mut results = HashMap::with_capacity(swaps.len());
                for swap in swaps {
                    match self.execute(&[*swap]).await {
                        Ok(single) => results.extend(single),
                        Err(error) => {
                            drop(results.insert(swap.key.clone(), Err(of_statement(&error))));
                        }
                    }
                }
                results
            }
            Err(error) => {
                let error = of_statement(&error);
                swaps
                    .iter()
                    .map(|swap| (swap.key.clone(), Err(error.duplicate())))
                    .collect()
            }
        }
    }

    /// Executes one statement. Conflicts have no record yet.
    async fn execute(&self, swaps: &[&QueuedSwap]) -> Result<Results, tokio_postgres::Error> {
        let Some(first) = swaps.first() else {
            return Ok(HashMap::new());
        };
        let keys: Vec<&[u8]> = swaps
            .iter()
            .map(|swap| swap.key.as_str().as_bytes())
            .collect();
        let expected: Vec<i64> = swaps
            .iter()
            .map(|swap| swap.expected.get().cast_signed())
            .collect();
        let next = || swaps.iter().filter_map(|swap| swap.next.as_ref());
        let revisions: Vec<i64> = next()
            .map(|record| record.revision().get().cast_signed())
            .collect();
        let records: Vec<Vec<u8>> = next().map(Record::encode).collect();
        let (statement, parameters): (_, &[&(dyn ToSql + Sync)]) =
            match (&first.next, first.expected) {
                (Some(_), Revision::NONE) => (&self.insert, &[&keys, &revisions, &records]),
                (Some(_), _) => (&self.update, &[&keys, &revisions, &records, &expected]),
                (None, _) => (&self.delete, &[&keys, &expected]),
            };
        let rows = self.connection.client.query(statement, parameters).await?;
        let changed: HashSet<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
        let result = |swap: &QueuedSwap| {
            if changed.contains(swap.key.as_str().as_bytes()) {
                Swap::Done
            } else {
                Swap::Conflict(None)
            }
        };
        Ok(swaps
            .iter()
            .map(|swap| (swap.key.clone(), Ok(result(swap))))
            .collect())
    }

    /// Loads the records of conflicts. The snapshot of the first statement may be older than the conflict, so this takes
    /// another one.
    async fn find_conflicts(&self, results: &mut Results) {
        let is_conflict =
            |result: &Result<Swap, RegisterError>| matches!(result, Ok(Swap::Conflict(_)));
        let keys: Vec<Key> = results
            .iter()
            .filter(|(_, result)| is_conflict(result))
            .map(|(key, _)| key.clone())
            .collect();
        if keys.is_empty() {
            return;
        }
        let found = self.load(keys.iter()).await.map_err(RegisterError::of_read);
        for key in keys {
            let conflict = match &found {
                Ok(found) => Ok(Swap::Conflict(found.get(&key).cloned())),
                Err(error) => Err(error.duplicate()),
            };
            results.insert(key, conflict);
        }
    }

    /// Loads the records of these keys.
    async fn load(
        &self,
        keys: impl Iterator<Item = &Key>,
    ) -> Result<HashMap<Key, Record>, RegisterError> {
        let keys: Vec<&[u8]> = keys.map(|key| key.as_str().as_bytes()).collect();
        let rows = self
            .connection
            .client
            .query(&self.load, &[&keys])
            .await
            .map_err(|error| of_statement(&error))?;
        rows.iter().map(entry).collect()
    }
}

/// Returns `true` if the connection is to be replaced.
fn is_ambiguous<T>(result: &Result<T, RegisterError>) -> bool {
    matches!(result, Err(error) if error.kind() == RegisterErrorKind::Ambiguous)
}

/// Reads the key and the record in a row.
fn entry(row: &Row) -> Result<(Key, Record), RegisterError> {
    let unreadable = |text: String| RegisterError::new(RegisterErrorKind::Unreadable, text);
    let (key, record): (&[u8], &[u8]) = (row.get(0), row.get(1));
    let key = std::str::from_utf8(key).map_err(|error| unreadable(error.to_string()))?;
    Ok((
        Key::new(key).map_err(|error| unreadable(error.to_string()))?,
        Record::decode(record)?,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use ifmatch_testbed::{Proxy, postgres, within};

    use super::*;

    /// Firewalls end idle connections, and so do administrators.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_that_ended_while_idle_is_replaced_before_the_next_call() {
        let server = postgres::start(&[]).await;
        crate::migrate(&server.url()).await.unwrap();
        let proxy = Proxy::start(server.address()).await;
        let target = PostgresServer::new(
            ConnectionSettings::parse(&server.url_at(proxy.address())).unwrap(),
        );
        let first = target.settings.connect().await.unwrap();
        let mut lane = ConnectionLane::open(target, first).await.unwrap();
        let first = lane.0.take().await.unwrap();
        proxy.redirect(server.address());
        within("the connection has ended", async {
            while !first.connection.client.is_closed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        lane.0.keep(first);
        lane.page(&Scan {
            limit: 1,
            ..Scan::default()
        })
        .await
        .unwrap();
    }

    /// The former primary wasn't stopped, and this connection to it is still open. Another one has found the new primary.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_to_a_former_primary_is_not_used_any_more() {
        let primary = postgres::start(&[]).await;
        crate::migrate(&primary.url()).await.unwrap();
        let standby = postgres::start_standby(primary.address(), &[]).await;
        let target = PostgresServer::new(ConnectionSettings::parse(&primary.url()).unwrap());
        let first = target.settings.connect().await.unwrap();
        let mut lane = ConnectionLane::open(target, first).await.unwrap();
        let scan = Scan {
            limit: 1,
            ..Scan::default()
        };
        lane.page(&scan).await.unwrap();
        postgres::promote(&standby);
        let other = ConnectionSettings::parse(&standby.url())
            .unwrap()
            .connect()
            .await
            .unwrap();
        lane.server().prepare(other).await.unwrap();
        let error = lane
            .page(&scan)
            .await
            .expect_err("it lacks the changes since the promotion");
        assert!(error.to_string().contains("former primary"), "{error}");
    }
}
