//! Platform services for ifmatch: clocks and timers, detached tasks and time limits, random numbers, queues of
//! tasks, private files, and durable folders. One API on the tokio runtime and in JavaScript runtimes.
//!
//! ```
//! use std::time::Duration;
//!
//! use ifmatch_runtime::{Clock, SystemClock, task};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let start = SystemClock.now();
//! let result = task::timeout(&SystemClock, Duration::from_secs(1), async { 3 }).await;
//! assert_eq!(result, Ok(3));
//! assert!(SystemClock.now() >= start);
//! # });
//! ```

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "tls")]
mod cause;
mod clock;
#[cfg(feature = "fs")]
pub mod folders;
#[cfg(feature = "test-util")]
mod manual_clock;
mod platform;
#[cfg(feature = "fs")]
pub mod private_files;
mod random;
pub mod task;

pub use async_trait::async_trait;
#[cfg(feature = "tls")]
pub use cause::Cause;
pub use clock::{Clock, SystemClock};
#[cfg(feature = "test-util")]
pub use manual_clock::ManualClock;
pub use platform::{KeyedLocks, KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub use random::{RandomError, jittered, nonce, random_bytes};
