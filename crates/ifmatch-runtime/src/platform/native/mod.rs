//! Platforms with a clock and threads, on the tokio runtime.

pub use locks::KeyedLocks;
pub use queue::{KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub(crate) use task::spawn;
pub(crate) use time::{interval, since_1970, sleep};

#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "boot_time.rs")]
mod elapsed;
mod locks;
mod queue;
mod task;
mod time;
