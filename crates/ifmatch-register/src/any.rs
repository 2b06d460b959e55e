//! A register chosen at run time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};

use crate::engine_clock::EngineTime;
use crate::key::Key;
use crate::register::{Epoch, Guarantee, Register, RegisterError, Scan, Swap};

/// A register chosen at run time. Costs one allocation per call.
///
/// ```
/// use ifmatch_register::{AnyRegister, MemoryRegister};
/// let register = AnyRegister::new(MemoryRegister::unbounded());
/// ```
#[derive(Clone)]
pub struct AnyRegister(Arc<dyn Erased>);

impl AnyRegister {
    /// Wraps a register.
    pub fn new(register: impl Register) -> Self {
        Self(Arc::new(register))
    }
}

impl fmt::Debug for AnyRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyRegister")
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RegisterError>> + Send + 'a>>;

trait Erased: Send + Sync + 'static {
    fn guarantee(&self) -> Guarantee;
    fn epoch(&self, key: &Key) -> Epoch;
    fn time(&self, key: &Key) -> Option<EngineTime>;
    fn clock_error(&self) -> Option<Duration>;
    fn load<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Record>>;
    fn revision_at_once(&self, key: &Key) -> Option<Revision>;
    fn compare_and_swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Revision,
        next: Option<&'a Record>,
    ) -> BoxFuture<'a, Swap>;
    fn scan<'a>(&'a self, scan: &'a Scan<'a>) -> BoxFuture<'a, Vec<(Key, Record)>>;
}

impl<R: Register> Erased for R {
    fn guarantee(&self) -> Guarantee {
        Register::guarantee(self)
    }

    fn epoch(&self, key: &Key) -> Epoch {
        Register::epoch(self, key)
    }

    fn time(&self, key: &Key) -> Option<EngineTime> {
        Register::time(self, key)
    }

    fn clock_error(&self) -> Option<Duration> {
        Register::clock_error(self)
    }

    fn load<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Option<Record>> {
        Box::pin(Register::load(self, key))
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        Register::revision_at_once(self, key)
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a Key,
        expected: Revision,
        next: Option<&'a Record>,
    ) -> BoxFuture<'a, Swap> {
        Box::pin(Register::compare_and_swap(self, key, expected, next))
    }

    fn scan<'a>(&'a self, scan: &'a Scan<'a>) -> BoxFuture<'a, Vec<(Key, Record)>> {
        Box::pin(Register::scan(self, scan))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Register for AnyRegister {
    fn guarantee(&self) -> Guarantee {
        Erased::guarantee(&*self.0)
    }

    fn epoch(&self, key: &Key) -> Epoch {
        Erased::epoch(&*self.0, key)
    }

    fn time(&self, key: &Key) -> Option<EngineTime> {
        Erased::time(&*self.0, key)
    }

    fn clock_error(&self) -> Option<Duration> {
        Erased::clock_error(&*self.0)
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        Erased::load(&*self.0, key).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        Erased::revision_at_once(&*self.0, key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        Erased::compare_and_swap(&*self.0, key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Erased::scan(&*self.0, scan).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: Register> Register for Arc<R> {
    fn guarantee(&self) -> Guarantee {
        R::guarantee(self)
    }

    fn epoch(&self, key: &Key) -> Epoch {
        R::epoch(self, key)
    }

    fn time(&self, key: &Key) -> Option<EngineTime> {
        R::time(self, key)
    }

    fn clock_error(&self) -> Option<Duration> {
        R::clock_error(self)
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        R::load(self, key).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        R::revision_at_once(self, key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        R::compare_and_swap(self, key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        R::scan(self, scan).await
    }
}
