//! The statements of a lane, on a connection that is replaced when it fails.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join3};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, QueuedSwap};
use ifmatch_register::{EngineClock, Key, RegisterError, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};
use tokio_util::task::AbortOnDropHandle;

use crate::STATEMENT_LIMIT;
use crate::connection::Connection;
use crate::epoch::Known;
use crate::error::{OpenError, OpenErrorKind, is_lock, of_statement};
use crate::settings::Settings;

/// Number of failures in a row after which calls fail at once.
const FAILURES: u32 = 3;
/// Mean interval between probes of a server that has failed.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

const INSERT: &str = "
    INSERT INTO ifmatch_records SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])
    ON CONFLICT DO NOTHING RETURNING key";
const UPDATE: &str = "
    UPDATE ifmatch_records AS r SET revision = n.revision, record = n.record
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[]) AS n (key, revision, record, expected)
    WHERE r.key = n.key AND r.revision = n.expected RETURNING r.key";
const DELETE: &str = "
    DELETE FROM ifmatch_records AS r USING unnest($1::bytea[], $2::bigint[]) AS n (key, expected)
    WHERE r.key = n.key AND r.revision = n.expected RETURNING r.key";
const LOAD: &str = "SELECT key, record FROM ifmatch_records WHERE key = ANY($1::bytea[])";
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const SCAN: &str = "
    SELECT key, record FROM ifmatch_records WHERE key > $1 AND key >= $2 AND key < $3 ORDER BY key LIMIT $4";

/// A connection with its prepared statements.
struct Prepared {
    connection: Connection,
    insert: Statement,
    update: Statement,
    delete: Statement,
    load: Statement,
    scan: Statement,
    time: Statement,
}

/// A lane's connection, or the attempt to get one.
pub(crate) struct Lane {
    settings: Arc<Settings>,
    clock: Arc<EngineClock>,
    epoch: Arc<Known>,
    prepared: Option<Prepared>,
    failures: u32,
    probe: Option<AbortOnDropHandle<Prepared>>,
}

impl Lane {
    pub(crate) fn new(settings: Arc<Settings>, clock: Arc<EngineClock>, epoch: Arc<Known>) -> Self {
        Self { settings, clock, epoch, prepared: None, failures: 0, probe: None }
    }

    /// Uses a connection that is already open.
    pub(crate) async fn adopt(&mut self, connection: Connection) -> Result<(), OpenError> {
        let prepared = prepare(connection, &self.epoch).await?;
        prepared.sample(&self.clock).await.map_err(OpenError::of)?;
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Returns the connection, connecting if necessary. Fails at once while a probe is under way.
    async fn prepared(&mut self) -> Result<&Prepared, RegisterError> {
        let usable = self.prepared.take().filter(|prepared| !prepared.connection.client.is_closed());
        let prepared = match (usable, self.probe.take()) {
            (Some(prepared), _) => prepared,
            (None, Some(probe)) if probe.is_finished() => probe.await.map_err(unavailable)?,
            (None, Some(probe)) => {
                self.probe = Some(probe);
                return Err(unavailable("the database server does not answer; it is probed until it does"));
            }
            (None, None) => match connect(&self.settings, &self.epoch).await {
                Ok(prepared) => prepared,
                Err(error) => {
                    self.failed();
                    return Err(unavailable(error));
                }
            },
        };
        Ok(self.prepared.insert(prepared))
    }

    /// Counts a failure, after which the connection is not used again.
    fn failed(&mut self) {
        self.prepared = None;
        self.failures += 1;
        if self.failures >= FAILURES && self.probe.is_none() {
            self.probe =
                Some(AbortOnDropHandle::new(tokio::spawn(probe(Arc::clone(&self.settings), Arc::clone(&self.epoch)))));
        }
    }

    /// Runs statements within the time limit, and samples the server's time along with them. Without an answer, or after an ambiguous failure, the connection is
    /// replaced: the server is not asked to cancel anything.
    async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&Prepared) -> Result<T, RegisterError>,
    ) -> Result<T, RegisterError> {
        let clock = Arc::clone(&self.clock);
        let prepared = self.prepared().await?;
        let work = async {
            // The sample is first in the pipeline, and is not delayed by the work.
            // Without one, the bounds of the time widen; the work has its own result.
            join(prepared.sample(&clock), work(prepared)).await.1
        };
        let result = tokio::time::timeout(STATEMENT_LIMIT, work).await.unwrap_or_else(|_| {
            let text = format!("the database server has not answered within {} ms", STATEMENT_LIMIT.as_millis());
            Err(RegisterError::new(RegisterErrorKind::Ambiguous, text))
        });
        match &result {
            Err(error) if error.kind() == RegisterErrorKind::Ambiguous => self.failed(),
            _ => self.failures = 0,
        }
        result
    }

    /// Lists a page of records.
    pub(crate) async fn scan(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let after = scan.after.unwrap_or_default().as_bytes();
        let (prefix, end) = (scan.prefix.as_bytes(), end_of(scan.prefix.as_bytes()));
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let page = self.run(async |prepared: &Prepared| {
            let rows = prepared.connection.client.query(&prepared.scan, &[&after, &prefix, &end, &limit]).await;
            rows.map_err(|error| of_statement(&error))?.iter().map(entry).collect()
        });
        page.await.map_err(RegisterError::of_read)
    }
}

/// Returns the first bytes after all those with a prefix. No key contains the byte 255, which UTF-8 does not have.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(u8::MAX),
    }
    end
}

impl Batches for Lane {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        let mut sorted: Vec<&QueuedSwap> = batch.iter().collect();
        // Batches of several processes lock their rows in the same order.
        sorted.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        let failures = self.failures;
        let done = self.run(async |prepared: &Prepared| Ok(prepared.swap(&sorted).await)).await;
        let mut results = match done {
            Ok(results) => results,
            Err(error) => return batch.iter().map(|_| Err(error.duplicate())).collect(),
        };
        if results.values().any(|result| matches!(result, Err(error) if error.kind() == RegisterErrorKind::Ambiguous)) {
            self.failures = failures;
            self.failed();
        }
        let missing = || Err(RegisterErrorKind::Ambiguous.into());
        batch.iter().map(|swap| results.remove(&swap.key).unwrap_or_else(missing)).collect()
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        let found = self.run(async |prepared: &Prepared| prepared.load(keys.iter()).await).await;
        let found = found.map_err(RegisterError::of_read)?;
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

type Results = HashMap<Key, Result<Swap, RegisterError>>;

impl Prepared {
    /// Samples the server's time.
    async fn sample(&self, clock: &EngineClock) -> Result<(), tokio_postgres::Error> {
        let sent = SystemClock.now();
        let row = self.connection.client.query_one(&self.time, &[]).await?;
        let micros: i64 = row.get(0);
        clock.sample(sent, SystemClock.now(), Timestamp::from_micros(micros.cast_unsigned()));
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
        let parts = join3(self.part(&creations), self.part(&changes), self.part(&removals)).await;
        let mut results = parts.0;
        results.extend(parts.1);
        results.extend(parts.2);
        if self.connection.take_warning() {
            // A wait for a synchronous standby has ended early: the changes are visible, but may not be replicated.
            for result in results.values_mut().filter(|result| matches!(result, Ok(Swap::Done))) {
                let text = "the database server may not have replicated the change";
                *result = Err(RegisterError::new(RegisterErrorKind::Ambiguous, text));
            }
        }
        self.find_conflicts(&mut results).await;
        results
    }

    /// Carries out swaps of one kind. If other transactions hold locks, tries each swap by itself.
    async fn part(&self, swaps: &[&QueuedSwap]) -> Results {
        match self.execute(swaps).await {
            Ok(results) => results,
            Err(error) if is_lock(&error) && swaps.len() > 1 => {
                let mut results = HashMap::with_capacity(swaps.len());
                for swap in swaps {
                    match self.execute(&[*swap]).await {
                        Ok(single) => results.extend(single),
                        Err(error) => drop(results.insert(swap.key.clone(), Err(of_statement(&error)))),
                    }
                }
                results
            }
            Err(error) => {
                let error = of_statement(&error);
                swaps.iter().map(|swap| (swap.key.clone(), Err(error.duplicate()))).collect()
            }
        }
    }

    /// Executes one statement. Conflicts have no record yet.
    async fn execute(&self, swaps: &[&QueuedSwap]) -> Result<Results, tokio_postgres::Error> {
        let Some(first) = swaps.first() else { return Ok(HashMap::new()) };
        let keys: Vec<&[u8]> = swaps.iter().map(|swap| swap.key.as_str().as_bytes()).collect();
        let expected: Vec<i64> = swaps.iter().map(|swap| swap.expected.get().cast_signed()).collect();
        let next = || swaps.iter().filter_map(|swap| swap.next.as_ref());
        let revisions: Vec<i64> = next().map(|record| record.revision().get().cast_signed()).collect();
        let records: Vec<Vec<u8>> = next().map(Record::encode).collect();
        let (statement, parameters): (_, &[&(dyn ToSql + Sync)]) = match (&first.next, first.expected) {
            (Some(_), Revision::NONE) => (&self.insert, &[&keys, &revisions, &records]),
            (Some(_), _) => (&self.update, &[&keys, &revisions, &records, &expected]),
            (None, _) => (&self.delete, &[&keys, &expected]),
        };
        let rows = self.connection.client.query(statement, parameters).await?;
        let changed: HashSet<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
        let result = |swap: &QueuedSwap| {
            if changed.contains(swap.key.as_str().as_bytes()) { Swap::Done } else { Swap::Conflict(None) }
        };
        Ok(swaps.iter().map(|swap| (swap.key.clone(), Ok(result(swap)))).collect())
    }

    /// Loads the records of conflicts. The snapshot of the first statement may be older than the conflict, so this takes
    /// another one.
    async fn find_conflicts(&self, results: &mut Results) {
        let is_conflict = |result: &Result<Swap, RegisterError>| matches!(result, Ok(Swap::Conflict(_)));
        let keys: Vec<Key> =
            results.iter().filter(|(_, result)| is_conflict(result)).map(|(key, _)| key.clone()).collect();
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

    async fn load(&self, keys: impl Iterator<Item = &Key>) -> Result<HashMap<Key, Record>, RegisterError> {
        let keys: Vec<&[u8]> = keys.map(|key| key.as_str().as_bytes()).collect();
        let rows = self.connection.client.query(&self.load, &[&keys]).await.map_err(|error| of_statement(&error))?;
        rows.iter().map(entry).collect()
    }
}

async fn connect(settings: &Settings, epoch: &Known) -> Result<Prepared, OpenError> {
    let connection = settings.connect().await?;
    tokio::time::timeout(STATEMENT_LIMIT, prepare(connection, epoch)).await.unwrap_or_else(|_| {
        Err(OpenError::new(OpenErrorKind::Unreachable, "the database server accepts connections, and does not answer"))
    })
}

async fn prepare(connection: Connection, epoch: &Known) -> Result<Prepared, OpenError> {
    connection.check_epoch(epoch).await?;
    let prepare = async |text: &str| connection.client.prepare(text).await.map_err(OpenError::of);
    let (insert, update, delete) = (prepare(INSERT).await?, prepare(UPDATE).await?, prepare(DELETE).await?);
    let (load, time) = (prepare(LOAD).await?, prepare(TIME).await?);
    let scan = connection.client.prepare_typed(SCAN, &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8]).await;
    let scan = scan.map_err(OpenError::of)?;
    Ok(Prepared { connection, insert, update, delete, load, scan, time })
}

/// Probes the server until it can be used.
async fn probe(settings: Arc<Settings>, epoch: Arc<Known>) -> Prepared {
    loop {
        // From half of the interval to one and a half, so that processes do not probe at the same time.
        let jitter = ifmatch_runtime::nonce().unwrap_or_default() % 1_000;
        tokio::time::sleep(PROBE_INTERVAL / 2 + PROBE_INTERVAL * u32::try_from(jitter).unwrap_or_default() / 1_000)
            .await;
        match connect(&settings, &epoch).await {
            Ok(prepared) => {
                tracing::info!("the database server answers again");
                return prepared;
            }
            Err(error) => tracing::debug!(%error, "the database server does not answer"),
        }
    }
}

fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RegisterError {
    RegisterError::new(RegisterErrorKind::Unavailable, error)
}

fn entry(row: &Row) -> Result<(Key, Record), RegisterError> {
    let unreadable = |text: String| RegisterError::new(RegisterErrorKind::Unreadable, text);
    let (key, record): (&[u8], &[u8]) = (row.get(0), row.get(1));
    let key = std::str::from_utf8(key).map_err(|error| unreadable(error.to_string()))?;
    Ok((Key::new(key).map_err(|error| unreadable(error.to_string()))?, Record::decode(record)?))
}
