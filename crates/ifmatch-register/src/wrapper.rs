//! Registers that change some of another register's calls.

use async_trait::async_trait;
use ifmatch_core::record::{Record, Revision};

use crate::key::Key;
use crate::register::{Engine, Register, RegisterError, Scan, Swap};

/// Wraps another register, for metrics or for faults in tests. It passes on the calls that it doesn't override, and is
/// a [`Register`] itself.
///
/// ```
/// use ifmatch_register::{Engine, Guarantee, MemoryRegister, Register, Wrapper};
///
/// struct Lossy(MemoryRegister);
///
/// impl Wrapper for Lossy {
///     fn inner(&self) -> &dyn Register {
///         &self.0
///     }
///
///     fn engine(&self) -> Engine {
///         Engine { guarantee: Guarantee::UntilFailover, ..self.0.engine() }
///     }
/// }
///
/// let register: &dyn Register = &Lossy(MemoryRegister::unbounded());
/// assert!(register.engine().guarantee.may_lose_swaps());
/// ```
#[async_trait]
pub trait Wrapper: Send + Sync + 'static {
    /// Returns the register that gets the calls.
    fn inner(&self) -> &dyn Register;

    /// See [`Register::load`].
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.inner().load(key).await
    }

    /// See [`Register::compare_and_swap`].
    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.inner().compare_and_swap(key, expected, next).await
    }

    /// See [`Register::scan`].
    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.inner().scan(scan).await
    }

    /// See [`Register::engine`].
    fn engine(&self) -> Engine {
        self.inner().engine()
    }

    /// See [`Register::revision_at_once`]. Defaults to `None`, so no response bypasses a [`load`](Self::load) that is
    /// overridden.
    fn revision_at_once(&self, _key: &Key) -> Option<Revision> {
        None
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<W: Wrapper> Register for W {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        Wrapper::load(self, key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        Wrapper::compare_and_swap(self, key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Wrapper::scan(self, scan).await
    }

    fn engine(&self) -> Engine {
        Wrapper::engine(self)
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        Wrapper::revision_at_once(self, key)
    }
}
