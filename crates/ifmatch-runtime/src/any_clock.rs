//! A clock chosen at run time.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ifmatch_core::date::Timestamp;

use crate::clock::{Clock, SystemClock};

/// Any clock, behind a pointer. Cheap to clone.
///
/// ```
/// use ifmatch_runtime::{AnyClock, Clock, SystemClock};
///
/// let clock = AnyClock::new(SystemClock);
/// assert!(clock.now() <= clock.clone().now());
/// ```
#[derive(Clone)]
pub struct AnyClock(Arc<dyn Erased>);

impl AnyClock {
    /// Wraps a clock.
    pub fn new(clock: impl Clock) -> Self {
        Self(Arc::new(clock))
    }
}

/// The system's clocks.
impl Default for AnyClock {
    fn default() -> Self {
        Self::new(SystemClock)
    }
}

impl fmt::Debug for AnyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyClock")
    }
}

trait Erased: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
    fn wall(&self) -> Timestamp;
    fn sleep(&self, duration: Duration) -> BoxFuture<'_, ()>;
}

impl<C: Clock> Erased for C {
    fn now(&self) -> Timestamp {
        Clock::now(self)
    }

    fn wall(&self) -> Timestamp {
        Clock::wall(self)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Clock::sleep(self, duration))
    }
}

impl Clock for AnyClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        self.0.sleep(duration)
    }
}
