//! Platforms with a clock and threads, on the tokio runtime.

use std::future::Future;

use tokio::runtime::Handle;

pub use locks::KeyedLocks;
pub use queue::{KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub(crate) use random::{FillError, fill};
pub(crate) use time::{interval, since_1970, sleep};

mod locks;
mod queue;
mod random;
mod time;

/// Spawns a task. Without a runtime, the task is dropped.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(work));
    }
}
