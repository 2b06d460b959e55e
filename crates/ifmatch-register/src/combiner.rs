//! Combines the changes of one record that wait at the same time into one swap.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifmatch_core::command::Applied;
use ifmatch_core::date::Timestamp;
use ifmatch_core::group::Change;
use ifmatch_core::record::Record;
use ifmatch_runtime::task::detach;
use tokio::sync::oneshot;

use crate::driver::{Driver, DriverError};
use crate::key::Key;
use crate::register::{RegisterError, RegisterErrorKind};

/// Maximum number of changes in one swap, so a record remembers the responses of a whole group.
const MAX_GROUP: usize = Record::MAX_REPLIES;

/// Runs the changes of one process on a register, so a key that many writers change at once is as fast as many keys.
///
/// The changes of a key that arrive while a swap is under way are applied in order of arrival to the record that it
/// leaves, and stored by the next swap (see [`ifmatch_core::group`]). None waits for more than its turn, and none is refused
/// because others were faster.
///
/// ```text
///   changes of a key      A          B C D        E
///   swaps                 ├── A ──┤├── B C D ──┤├── E ──┤
///   answers                       A          B C D      E
/// ```
///
/// The changes of a group share their fate: if the response to their swap is lost, all are ambiguous. A change whose caller is
/// gone stays in its group.
///
/// A [`Staging`] writes what the record refers to, before the swap: for a group of appends, all blocks at once.
///
/// Use it only for records that are written by nothing but [`Write`](ifmatch_core::command::Write) and
/// [`LeaseOperation`](ifmatch_core::command::LeaseOperation): a change doesn't wait for a permit to end. The number of
/// changes that wait is the number of callers, which must be bounded elsewhere.
pub struct Combiner<C: Change, S = ()>(Arc<Shared<C, S>>);

/// Reads what the changes of a group need besides the record, and writes what the record will refer to.
///
/// ```text
///   load the record ─▶ prepare ─▶ decide ─▶ stage ─▶ swap the record
///                                   ▲          │
///                                   └─ failed ─┘
/// ```
pub trait Staging<C: Change>: Send + Sync + 'static {
    /// Returns the context of the first change. A failure goes into the context, for the changes that need what can't be read.
    fn prepare(
        &self,
        before: &Record,
        changes: &[&C],
        now: Timestamp,
    ) -> impl Future<Output = C::Context> + Send;

    /// Makes durable what the changes have left in the context, unless they left nothing. Returns, if that fails, the context by which
    /// the changes are decided again: it must refuse those that can't be written.
    fn stage(
        &self,
        context: &mut C::Context,
    ) -> impl Future<Output = Result<(), C::Context>> + Send;
}

/// For changes that need nothing but the record.
impl<C: Change<Context = ()> + Sync> Staging<C> for () {
    async fn prepare(&self, _: &Record, _: &[&C], _: Timestamp) {}

    async fn stage(&self, (): &mut ()) -> Result<(), ()> {
        Ok(())
    }
}

/// What a combiner shares with its tasks.
struct Shared<C: Change, S> {
    driver: Driver,
    staging: S,
    /// The changes that wait at each key. A key is here as long as a task runs its groups.
    queues: Mutex<HashMap<Key, VecDeque<Waiting<C>>>>,
}

/// A change that waits for its group.
struct Waiting<C: Change> {
    change: C,
    answer: oneshot::Sender<Answer<C>>,
}

/// The effect of a change or its own error, unless its whole group failed.
type Answer<C> = Result<Result<Applied, <C as Change>::Error>, DriverError>;

impl<C> Combiner<C>
where
    C: Change<Context = (), Error: Send> + Send + Sync + 'static,
{
    /// Creates a combiner that runs its changes with this driver.
    pub fn new(driver: Driver) -> Self {
        Self::with_staging(driver, ())
    }
}

impl<C, S> Combiner<C, S>
where
    C: Change<Context: Send, Error: Send> + Send + Sync + 'static,
    S: Staging<C>,
{
    /// Creates a combiner that runs its changes by this driver, and writes what they refer to.
    pub fn with_staging(driver: Driver, staging: S) -> Self {
        Self(Arc::new(Shared {
            driver,
            staging,
            queues: Mutex::default(),
        }))
    }

    /// Makes a change when its turn comes. The inner result is the change's own error, in which case nothing was
    /// changed.
    ///
    /// # Errors
    /// Same as [`Driver::apply`].
    pub async fn apply(&self, key: &Key, change: C) -> Answer<C> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { change, answer };
        let is_first = {
            let mut queues = self.0.lock();
            let running = queues.get_mut(key);
            let is_first = running.is_none();
            match running {
                Some(queue) => queue.push_back(waiting),
                None => drop(queues.insert(key.clone(), VecDeque::from([waiting]))),
            }
            is_first
        };
        if is_first {
            let groups = Groups {
                shared: Arc::clone(&self.0),
                key: key.clone(),
                is_done: false,
            };
            drop(detach(groups.run()));
        }
        // The task was dropped with its runtime, or has panicked: its swap may be under way.
        answered
            .await
            .unwrap_or_else(|_| Err(RegisterError::from(RegisterErrorKind::Ambiguous).into()))
    }
}

impl<C: Change, S> Shared<C, S> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Waiting<C>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that runs the groups of one key. If it ends early, the changes that wait for it are dropped.
struct Groups<C: Change, S> {
    shared: Arc<Shared<C, S>>,
    key: Key,
    /// `true` if the key is no longer this task's.
    is_done: bool,
}

impl<C: Change, S: Staging<C>> Groups<C, S> {
    async fn run(mut self) {
        while let Some(group) = self.next() {
            let changes: Vec<&C> = group.iter().map(|waiting| &waiting.change).collect();
            let result = self
                .shared
                .driver
                .apply_group(&self.key, &changes, &self.shared.staging)
                .await;
            match result {
                Ok(done) => {
                    let mut group = VecDeque::from(group);
                    for (waiting, applied) in group.drain(..done.applied.len()).zip(done.applied) {
                        // The caller may be gone.
                        let _ = waiting.answer.send(Ok(applied));
                    }
                    self.put_back(group);
                }
                Err(error) => {
                    for waiting in group {
                        let _ = waiting.answer.send(Err(error.duplicate()));
                    }
                }
            }
        }
    }

    /// Puts changes that didn't join their group before those that wait.
    fn put_back(&self, mut rest: VecDeque<Waiting<C>>) {
        if let Some(queue) = self.shared.lock().get_mut(&self.key) {
            rest.append(queue);
            *queue = rest;
        }
    }

    /// Takes the next group, or gives up the key if no change waits.
    fn next(&mut self) -> Option<Vec<Waiting<C>>> {
        let mut queues = self.shared.lock();
        let queue = queues.get_mut(&self.key).filter(|queue| !queue.is_empty());
        let Some(queue) = queue else {
            self.is_done = true;
            queues.remove(&self.key);
            return None;
        };
        let length = queue.len().min(MAX_GROUP);
        Some(queue.drain(..length).collect())
    }
}

impl<C: Change, S> Drop for Groups<C, S> {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.lock().remove(&self.key);
        }
    }
}
