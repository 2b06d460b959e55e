//! Lanes, which gather the calls of many tasks into batches, for registers on a server.
//!
//! A statement that carries many swaps costs little more than one with a single swap. While a batch is under way, the next
//! one gathers. The lane of a swap is determined by its key.
//!
//! ```
//! use std::time::Duration;
//! use ifmatch_core::record::Record;
//! use ifmatch_register::lanes::{Batches, Lanes, QueuedSwap};
//! use ifmatch_register::{Key, MemoryRegister, Register, RegisterError, Swap};
//!
//! struct Connection(MemoryRegister);
//!
//! impl Batches for Connection {
//!     async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
//!         let mut results = Vec::new();
//!         for swap in batch {
//!             results.push(self.0.compare_and_swap(&swap.key, swap.expected, swap.next.as_ref()).await);
//!         }
//!         results
//!     }
//!
//!     async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
//!         let mut records = Vec::new();
//!         for key in keys {
//!             records.push(self.0.load(key).await?);
//!         }
//!         Ok(records)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let lanes = Lanes::start([Connection(MemoryRegister::unbounded())], [], Duration::from_secs(5));
//! let key = Key::new("note")?;
//! assert_eq!(lanes.swap(&key, Default::default(), Some(&Record::absent())).await?, Swap::Done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_runtime::{SystemClock, task};
use tokio::sync::{mpsc, oneshot};

use crate::key::Key;
use crate::metrics;
pub use crate::reconnecting::{Connect, Reconnecting};
use crate::register::{RegisterError, RegisterErrorKind, Swap};
pub use crate::scans::{Pages, Scans};

/// Maximum number of calls in a batch, and of calls that wait in the queue of a lane.
pub const BATCH: usize = 256;

/// Length of a revision in front of a record, in bytes.
const REVISION: usize = size_of::<u64>();

/// Encodes a record with its revision in front, big-endian, for engines that compare the first eight bytes of a value.
///
/// ```
/// use ifmatch_core::record::Record;
/// use ifmatch_register::lanes::{decode, encode};
///
/// let bytes = encode(&Record::absent());
/// assert_eq!(bytes[..8], [0; 8]);
/// assert_eq!(decode(&bytes)?, Record::absent());
/// # Ok::<(), ifmatch_register::RegisterError>(())
/// ```
pub fn encode(record: &Record) -> Vec<u8> {
    [&record.revision().get().to_be_bytes()[..], &record.encode()].concat()
}

/// Decodes a record with its revision in front.
///
/// # Errors
/// [`RegisterErrorKind::Unreadable`] if [`encode`] didn't write the bytes.
pub fn decode(bytes: &[u8]) -> Result<Record, RegisterError> {
    let (_, record) = bytes
        .split_at_checked(REVISION)
        .ok_or(RegisterErrorKind::Unreadable)?;
    Ok(Record::decode(record)?)
}

/// Carries out batches, usually on a connection of its own. Each lane has one.
///
/// A batch must end within a time limit, with an error if necessary: the next one waits for it.
pub trait Batches: Send + 'static {
    /// Carries out the swaps, and returns the result of each, in their order. Each key occurs once. Missing results count
    /// as [`RegisterErrorKind::Ambiguous`].
    fn swap(
        &mut self,
        batch: &[QueuedSwap],
    ) -> impl Future<Output = Vec<Result<Swap, RegisterError>>> + Send;

    /// Loads the record of each key, in their order. A key may occur several times.
    fn load(
        &mut self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Record>>, RegisterError>> + Send;
}

/// A swap in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedSwap {
    /// The key.
    pub key: Key,
    /// The revision to replace, or [`Revision::NONE`] if there must be no record.
    pub expected: Revision,
    /// The new record, or `None` to remove the record.
    pub next: Option<Record>,
}

/// A register's lanes.
#[derive(Debug)]
pub struct Lanes {
    swaps: Vec<mpsc::Sender<Job<QueuedSwap, Swap>>>,
    loads: Vec<mpsc::Sender<Job<Key, Option<Record>>>>,
    hasher: RandomState,
    /// Time limit of each call.
    limit: Duration,
}

/// A call that waits for a batch.
#[derive(Debug)]
struct Job<Q, A> {
    request: Q,
    /// Set by the lane when it puts the call into a batch, or by the caller when it gives up: the first decides.
    claimed: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<A, RegisterError>>,
}

impl Lanes {
    /// Starts a lane for each of the given connections, as tasks of the current runtime that end when this value is
    /// dropped. One or two for swaps, and one or two for loads, are best. `limit` is the time limit of each call.
    pub fn start<B: Batches>(
        swaps: impl IntoIterator<Item = B>,
        loads: impl IntoIterator<Item = B>,
        limit: Duration,
    ) -> Self {
        let swaps = swaps.into_iter().map(|batches| {
            let (jobs, waiting) = mpsc::channel(BATCH);
            drop(task::detach(swap_lane(batches, waiting)));
            jobs
        });
        let loads = loads.into_iter().map(|batches| {
            let (jobs, waiting) = mpsc::channel(BATCH);
            drop(task::detach(load_lane(batches, waiting)));
            jobs
        });
        Self {
            swaps: swaps.collect(),
            loads: loads.collect(),
            hasher: RandomState::new(),
            limit,
        }
    }

    /// Swaps as [`Register::compare_and_swap`](crate::Register::compare_and_swap) does.
    ///
    /// # Errors
    /// The batch's error. After the time limit, [`RegisterErrorKind::Unavailable`] if the swap was in no batch, otherwise
    /// [`RegisterErrorKind::Ambiguous`].
    pub async fn swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let request = QueuedSwap {
            key: key.clone(),
            expected,
            next: next.cloned(),
        };
        self.call(&self.swaps, key, request).await
    }

    /// Loads a record as [`Register::load`](crate::Register::load) does.
    ///
    /// # Errors
    /// The batch's error, or [`RegisterErrorKind::Unavailable`] after the time limit.
    pub async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.call(&self.loads, key, key.clone())
            .await
            .map_err(RegisterError::of_read)
    }

    async fn call<Q, A>(
        &self,
        lanes: &[mpsc::Sender<Job<Q, A>>],
        key: &Key,
        request: Q,
    ) -> Result<A, RegisterError> {
        let lane = self.hasher.hash_one(key) % (lanes.len().max(1) as u64);
        let lane = usize::try_from(lane)
            .ok()
            .and_then(|lane| lanes.get(lane))
            .ok_or_else(ended)?;
        let claimed = Arc::new(AtomicBool::new(false));
        let (answer, answered) = oneshot::channel();
        let job = Job {
            request,
            claimed: Arc::clone(&claimed),
            answer,
        };
        let call = async {
            lane.send(job).await.map_err(|_| ended())?;
            answered
                .await
                .unwrap_or_else(|_| Err(RegisterErrorKind::Ambiguous.into()))
        };
        match task::timeout(&SystemClock, self.limit, call).await {
            Ok(result) => result,
            Err(elapsed) if claimed.swap(true, Ordering::AcqRel) => {
                Err(RegisterError::new(RegisterErrorKind::Ambiguous, elapsed))
            }
            Err(elapsed) => Err(RegisterError::new(RegisterErrorKind::Unavailable, elapsed)),
        }
    }
}

impl<Q, A> Job<Q, A> {
    /// Claims the call for a batch. Returns `None` if its caller is gone or has given up.
    fn claim(self) -> Option<Self> {
        (!self.answer.is_closed() && !self.claimed.swap(true, Ordering::AcqRel)).then_some(self)
    }
}

fn ended() -> RegisterError {
    RegisterError::new(
        RegisterErrorKind::Unavailable,
        "the lanes of the register have ended",
    )
}

/// Waits for calls. Returns `false` once there will be none.
async fn gather<T>(waiting: &mut mpsc::Receiver<T>, queue: &mut VecDeque<T>) -> bool {
    if queue.is_empty() {
        match waiting.recv().await {
            Some(first) => queue.push_back(first),
            None => return false,
        }
    }
    // Other tasks may be about to call.
    yield_once().await;
    while queue.len() < BATCH
        && let Ok(next) = waiting.try_recv()
    {
        queue.push_back(next);
    }
    true
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn load_lane<B: Batches>(
    mut batches: B,
    mut waiting: mpsc::Receiver<Job<Key, Option<Record>>>,
) {
    let mut queue = VecDeque::new();
    while gather(&mut waiting, &mut queue).await {
        let batch: Vec<_> = queue.drain(..).filter_map(Job::claim).collect();
        if batch.is_empty() {
            continue;
        }
        metrics::batch("load", batch.len());
        let keys: Vec<Key> = batch.iter().map(|job| job.request.clone()).collect();
        match batches.load(&keys).await {
            Ok(records) => {
                for (job, record) in batch.into_iter().zip(records) {
                    // The caller may be gone.
                    let _ = job.answer.send(Ok(record));
                }
            }
            Err(error) => {
                for job in batch {
                    let _ = job.answer.send(Err(error.duplicate()));
                }
            }
        }
    }
}

async fn swap_lane<B: Batches>(mut batches: B, mut waiting: mpsc::Receiver<Job<QueuedSwap, Swap>>) {
    let mut queue = VecDeque::new();
    while gather(&mut waiting, &mut queue).await {
        let (batch, answers) = take_batch(&mut queue);
        if batch.is_empty() {
            continue;
        }
        metrics::batch("swap", batch.len());
        let mut results = batches.swap(&batch).await.into_iter();
        let mut left = HashMap::with_capacity(batch.len());
        for (swap, answer) in batch.into_iter().zip(answers) {
            let result = results
                .next()
                .unwrap_or_else(|| Err(RegisterErrorKind::Ambiguous.into()));
            match &result {
                Ok(Swap::Done) => drop(left.insert(swap.key, swap.next)),
                Ok(Swap::Conflict(found)) => drop(left.insert(swap.key, found.clone())),
                // The record isn't known: the next swap of the key finds out.
                Err(_) => {}
            }
            // The caller may be gone.
            let _ = answer.send(result);
        }
        answer_conflicts(&mut queue, &left);
    }
}

/// Where the results of a batch go, in its order.
type Answers = Vec<oneshot::Sender<Result<Swap, RegisterError>>>;

/// Takes the first swap of each key from the queue.
fn take_batch(queue: &mut VecDeque<Job<QueuedSwap, Swap>>) -> (Vec<QueuedSwap>, Answers) {
    let mut batch = HashSet::with_capacity(queue.len());
    let (mut swaps, mut answers) = (
        Vec::with_capacity(queue.len()),
        Vec::with_capacity(queue.len()),
    );
    for job in std::mem::take(queue) {
        if batch.contains(&job.request.key) {
            queue.push_back(job);
        } else if let Some(job) = job.claim() {
            batch.insert(job.request.key.clone());
            swaps.push(job.request);
            answers.push(job.answer);
        }
    }
    (swaps, answers)
}

/// Answers swaps that waited behind another of their key, unless they expect the record that it left. They were called
/// before its batch began, so their turn may have come right after it. Swaps called during the batch must not be answered
/// this way: their callers may know of a later swap, by another process.
fn answer_conflicts(
    queue: &mut VecDeque<Job<QueuedSwap, Swap>>,
    left: &HashMap<Key, Option<Record>>,
) {
    for job in std::mem::take(queue) {
        match left.get(&job.request.key) {
            Some(found)
                if found.as_ref().map_or(Revision::NONE, Record::revision)
                    != job.request.expected =>
            {
                if let Some(job) = job.claim() {
                    let _ = job.answer.send(Ok(Swap::Conflict(found.clone())));
                }
            }
            _ => queue.push_back(job),
        }
    }
}
