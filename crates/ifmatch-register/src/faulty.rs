//! A register in memory with faults, for tests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ifmatch_core::record::{Record, Revision};

use crate::key::Key;
use crate::memory::MemoryRegister;
use crate::register::{Engine, Register, RegisterError, RegisterErrorKind, Scan, Swap};
use crate::wrapper::Wrapper;

/// A fault in one swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: the response arrives.
    None,
    /// The swap fails, and changes nothing.
    Failed(RegisterErrorKind),
    /// The response is lost.
    Unanswered {
        /// `true` if the swap takes place.
        done: bool,
        /// `true` if the register is cut off afterwards.
        then_cut: bool,
    },
}

/// A register in memory with the faults that a test asks for. Clones share the records and the faults.
///
/// ```
/// use ifmatch_core::record::{Record, Revision};
/// use ifmatch_register::faulty::{Fault, FaultyRegister};
/// use ifmatch_register::{Key, Register};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let (register, key) = (FaultyRegister::default(), Key::new("note")?);
/// register.schedule([Fault::Unanswered { done: true, then_cut: false }]);
/// let record = Record::forgotten(Revision::new(7));
/// assert!(register.compare_and_swap(&key, Revision::NONE, Some(&record)).await.is_err());
/// assert_eq!(register.load(&key).await?, Some(record));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultyRegister(Arc<State>);

/// What clones share.
struct State {
    records: Arc<MemoryRegister>,
    engine: Mutex<Engine>,
    cut: AtomicBool,
    blind: AtomicBool,
    faults: Mutex<VecDeque<Fault>>,
    load_action: Mutex<Option<Action>>,
    swap_action: Mutex<Option<Action>>,
}

/// Something that happens before the next load or swap of a key with this prefix.
type Action = (&'static str, BoxFuture<'static, ()>);

impl Default for FaultyRegister {
    fn default() -> Self {
        Self::on(Arc::new(MemoryRegister::unbounded()))
    }
}

impl FaultyRegister {
    /// Returns another process's connection to these records, with faults of its own.
    pub fn on(records: Arc<MemoryRegister>) -> Self {
        let engine = Mutex::new(records.engine());
        let (cut, blind, faults, load_action, swap_action) = Default::default();
        Self(Arc::new(State {
            records,
            engine,
            cut,
            blind,
            faults,
            load_action,
            swap_action,
        }))
    }

    /// Makes the records survive the processes of a test.
    #[must_use]
    pub fn durable(self) -> Self {
        self.set_engine(Engine::default());
        self
    }

    /// Sets the engine that the register reports.
    pub fn set_engine(&self, engine: Engine) {
        *locked(&self.0.engine) = engine;
    }

    /// Returns the records, without faults.
    pub fn records(&self) -> &Arc<MemoryRegister> {
        &self.0.records
    }

    /// Adds faults for the next swaps, in order.
    pub fn schedule(&self, faults: impl IntoIterator<Item = Fault>) {
        locked(&self.0.faults).extend(faults);
    }

    /// Returns the number of swaps whose faults are still to come.
    pub fn scheduled(&self) -> usize {
        locked(&self.0.faults).len()
    }

    /// Cuts off the register, or connects it again. While it is cut off, all calls fail and change nothing.
    pub fn cut(&self, cut: bool) {
        self.0.cut.store(cut, Ordering::SeqCst);
    }

    /// Makes scans show no records, or all of them again.
    pub fn blind(&self, blind: bool) {
        self.0.blind.store(blind, Ordering::SeqCst);
    }

    /// Runs an action right before the next load of a key with this prefix. The load waits for it.
    pub fn before_load(
        &self,
        prefix: &'static str,
        action: impl Future<Output = ()> + Send + 'static,
    ) {
        *locked(&self.0.load_action) = Some((prefix, Box::pin(action)));
    }

    /// Runs an action right before the next swap of a key with this prefix. The swap waits for it.
    pub fn before_swap(
        &self,
        prefix: &'static str,
        action: impl Future<Output = ()> + Send + 'static,
    ) {
        *locked(&self.0.swap_action) = Some((prefix, Box::pin(action)));
    }

    /// Returns `true` while an action waits for its load.
    pub fn waits_for_load(&self) -> bool {
        locked(&self.0.load_action).is_some()
    }

    /// Returns `true` while an action waits for its swap.
    pub fn waits_for_swap(&self) -> bool {
        locked(&self.0.swap_action).is_some()
    }

    fn reach(&self) -> Result<(), RegisterError> {
        if self.0.cut.load(Ordering::SeqCst) {
            Err(RegisterErrorKind::Unavailable.into())
        } else {
            Ok(())
        }
    }
}

/// Runs the action that waits for this key, if there is one.
async fn run(action: &Mutex<Option<Action>>, key: &Key) {
    let action = locked(action).take_if(|(prefix, _)| key.as_str().starts_with(*prefix));
    if let Some((_, action)) = action {
        action.await;
    }
}

/// Locks a mutex. A test that has panicked in the meantime has failed already.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Wrapper for FaultyRegister {
    fn inner(&self) -> &dyn Register {
        &self.0.records
    }

    fn engine(&self) -> Engine {
        *locked(&self.0.engine)
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.reach()?;
        run(&self.0.load_action, key).await;
        self.0.records.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.reach()?;
        run(&self.0.swap_action, key).await;
        let fault = locked(&self.0.faults).pop_front();
        match fault {
            None | Some(Fault::None) => self.0.records.compare_and_swap(key, expected, next).await,
            Some(Fault::Failed(kind)) => Err(kind.into()),
            Some(Fault::Unanswered { done, then_cut }) => {
                if done {
                    self.0.records.compare_and_swap(key, expected, next).await?;
                }
                self.cut(then_cut);
                Err(RegisterErrorKind::Ambiguous.into())
            }
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.reach()?;
        if self.0.blind.load(Ordering::SeqCst) {
            Ok(Vec::new())
        } else {
            self.0.records.scan(scan).await
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("cut", &self.cut)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
