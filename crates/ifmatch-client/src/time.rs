//! The clock of a client, whichever it is.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;

/// Longest sleep without a look at the clock: a timer stands still while the machine is suspended.
const MAX_STEP: Duration = Duration::from_secs(1);

/// A clock behind a pointer.
#[derive(Clone)]
pub(crate) struct SharedClock(Arc<dyn AnyClock>);

trait AnyClock: Send + Sync {
    fn now(&self) -> Timestamp;
    fn wall(&self) -> Timestamp;
    fn sleep(&self, duration: Duration) -> BoxFuture<'_, ()>;
}

impl<C: Clock> AnyClock for C {
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

impl Clock for SharedClock {
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

impl SharedClock {
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self(Arc::new(clock))
    }

    /// Waits until a time of the interval clock, which also advances while the machine is suspended.
    pub(crate) async fn sleep_until(&self, time: Timestamp) {
        loop {
            let left = Clock::now(self).until(time);
            if left.is_zero() {
                return;
            }
            self.0.sleep(left.min(MAX_STEP)).await;
        }
    }
}

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedClock")
    }
}
