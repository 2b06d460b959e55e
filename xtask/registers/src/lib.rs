//! The engines of the shared registers, and a clock, for the soak test and the benchmark.

pub mod engine;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Result of a command. The error says what went wrong.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Returns the time in nanoseconds by a clock that all processes of the machine share.
pub fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
