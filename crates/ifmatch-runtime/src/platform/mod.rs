//! Platform-specific code: time, tasks and wakeups between tasks.

pub use imp::{KeyedLocks, KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub(crate) use imp::{interval, since_1970, sleep, spawn};

#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), path = "wasm/mod.rs")]
#[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), path = "native/mod.rs")]
mod imp;
