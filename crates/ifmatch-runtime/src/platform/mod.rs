//! Platform-specific code: time, randomness, tasks and wakeups between tasks.

pub(crate) use imp::{FillError, fill, interval, since_1970, sleep, spawn};
pub use imp::{KeyedLocks, KeyedQueue, MAX_POLL_INTERVAL, Turn};

#[cfg_attr(all(target_family = "wasm", feature = "wasi"), path = "wasi/mod.rs")]
#[cfg_attr(
    all(target_family = "wasm", target_os = "unknown", not(feature = "wasi")),
    path = "wasm/mod.rs"
)]
#[cfg_attr(
    not(all(target_family = "wasm", any(target_os = "unknown", feature = "wasi"))),
    path = "native/mod.rs"
)]
mod imp;
