//! The writer thread. It commits all waiting swaps in one transaction, with one sync of the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, RegisterError, RegisterErrorKind, Swap};
use redb::{Database, ReadableTable, Table};
use tokio::sync::{mpsc, oneshot};

use crate::database::{SharedDatabase, read};
use crate::error::{OpenError, unavailable, unavailable_now};
use crate::record_cache::{CachedRecord, RecordCache};
use crate::schema::{RECORDS, TextKey};

/// Maximum number of swaps in one transaction, and of swaps waiting for one.
const GROUP: usize = 256;

/// The result of a swap.
type SwapResult = Result<Swap, RegisterError>;

/// The thread, and the channel to it. Dropping it waits for the swaps that were sent.
#[derive(Debug)]
pub(crate) struct WriterThread {
    /// `None` only while dropped.
    jobs: Option<mpsc::Sender<SwapJob>>,
    thread: Option<JoinHandle<()>>,
}

/// A swap to carry out.
#[derive(Debug)]
struct SwapJob {
    key: Key,
    expected: Revision,
    /// The new record and its encoding, or `None` to remove the record.
    next: Option<(Record, Vec<u8>)>,
    answer: oneshot::Sender<SwapResult>,
}

impl WriterThread {
    /// Starts the thread.
    pub(crate) fn start(
        shared: Arc<SharedDatabase>,
        cache: Arc<RecordCache>,
    ) -> Result<Self, OpenError> {
        let (jobs, waiting) = mpsc::channel(GROUP);
        let thread = std::thread::Builder::new()
            .name("ifmatch-redb".into())
            .spawn(move || write_groups(&shared, &cache, waiting))
            .map_err(OpenError::other)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Reads a record after a failure, once the result of the last change is known.
    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        // No record has this revision, so the conflict returns the current record.
        match self.swap(key, Revision::new(u64::MAX), None).await {
            Ok(Swap::Conflict(found)) => Ok(found),
            Ok(Swap::Done) => Err(RegisterErrorKind::Unavailable.into()),
            Err(error) => Err(unavailable_now(error)),
        }
    }

    /// Carries out a swap. On return, it is durable.
    pub(crate) async fn swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> SwapResult {
        let next = next.map(|record| (record.clone(), record.encode()));
        let (answer, answered) = oneshot::channel();
        let job = SwapJob {
            key: key.clone(),
            expected,
            next,
            answer,
        };
        let jobs = self.jobs.as_ref().ok_or(RegisterErrorKind::Unavailable)?;
        jobs.send(job)
            .await
            .map_err(|_| RegisterErrorKind::Unavailable)?;
        answered.await.map_err(|_| RegisterErrorKind::Ambiguous)?
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends when its jobs are done; a panic in it has been answered as ambiguous.
            let _ = thread.join();
        }
    }
}

/// Commits groups of swaps until the channel is closed, and answers them.
fn write_groups(
    shared: &SharedDatabase,
    cache: &RecordCache,
    mut waiting: mpsc::Receiver<SwapJob>,
) {
    let mut group = Vec::with_capacity(GROUP);
    while waiting.blocking_recv_many(&mut group, GROUP) > 0 {
        gather(&mut waiting, &mut group);
        for job in &group {
            cache.begin(&job.key);
        }
        let result = shared.write(group.iter().map(|job| &job.key), |database| {
            commit(database, &group)
        });
        remember(cache, &mut group, result.as_deref().unwrap_or_default());
        let failed = match result {
            Ok(swaps) => {
                for (job, swap) in group.drain(..).zip(swaps) {
                    // The caller may be gone.
                    let _ = job.answer.send(Ok(swap));
                }
                continue;
            }
            Err(error) => error,
        };
        for job in group.drain(..) {
            let _ = job
                .answer
                .send(Err(RegisterError::new(failed.kind(), failed.to_string())));
        }
    }
}

/// Yields to threads that are about to submit more swaps, for example those that read requests on a busy core. Takes no
/// time if no thread waits for the core.
fn gather(waiting: &mut mpsc::Receiver<SwapJob>, group: &mut Vec<SwapJob>) {
    let mut before = 0;
    while before < group.len() && group.len() < GROUP {
        before = group.len();
        std::thread::yield_now();
        let room = GROUP - group.len();
        group.extend(std::iter::from_fn(|| waiting.try_recv().ok()).take(room));
    }
}

/// Updates the cache with the last record of each key in the group, never an earlier one.
fn remember(cache: &RecordCache, group: &mut [SwapJob], swaps: &[Swap]) {
    let mut left: HashMap<Key, Option<CachedRecord>> = HashMap::with_capacity(group.len());
    for (at, job) in group.iter_mut().enumerate() {
        let left = left.entry(job.key.clone()).or_default();
        if swaps.get(at) == Some(&Swap::Done) {
            *left = job.next.take().map(|(record, bytes)| CachedRecord {
                record,
                size: bytes.len(),
            });
        }
    }
    for (key, record) in left {
        cache.end(&key, record);
    }
}

/// Runs the swaps in order, in one transaction. No response is sent before the commit, not even a conflict, which may be
/// with a swap of the same group.
fn commit(database: &Database, group: &[SwapJob]) -> Result<Vec<Swap>, RegisterError> {
    let transaction = database.begin_write().map_err(unavailable)?;
    let swaps = {
        let mut table = transaction.open_table(RECORDS).map_err(unavailable)?;
        let swaps: Result<Vec<Swap>, RegisterError> =
            group.iter().map(|job| swap(&mut table, job)).collect();
        swaps?
    };
    if swaps.iter().all(|swap| *swap != Swap::Done) {
        transaction.abort().map_err(unavailable)?;
        return Ok(swaps);
    }
    transaction.commit().map_err(|error| {
        RegisterError::new(RegisterErrorKind::Ambiguous, redb::Error::from(error))
    })?;
    Ok(swaps)
}

/// Carries out a swap in a transaction.
fn swap(table: &mut Table<'_, TextKey, (u64, &'static [u8])>, job: &SwapJob) -> SwapResult {
    let key = job.key.as_str().as_bytes();
    let found = table
        .get(key)
        .map_err(unavailable)?
        .map_or(Revision::NONE.get(), |value| value.value().0);
    if found != job.expected.get() {
        return Ok(Swap::Conflict(
            read(table, &job.key)?.map(|stored| stored.record),
        ));
    }
    match &job.next {
        Some((record, bytes)) => {
            table
                .insert(key, (record.revision().get(), bytes.as_slice()))
                .map_err(unavailable)?;
        }
        None => {
            table.remove(key).map_err(unavailable)?;
        }
    }
    Ok(Swap::Done)
}
