//! Time elapsed since the system booted, on Linux.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since an arbitrary moment. It never goes back, and advances while the machine is suspended.
pub(super) fn elapsed() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}
