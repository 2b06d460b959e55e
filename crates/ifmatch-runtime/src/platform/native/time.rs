//! The system's clocks and the timer of the tokio runtime.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use elapsed::elapsed;

/// Returns the system's time since 1970 at the first call, plus the time elapsed since that call. It never goes back,
/// and setting the system time doesn't affect it.
pub(crate) fn interval() -> Duration {
    /// Time of day and elapsed time at the first call.
    static START: LazyLock<(Duration, Duration)> = LazyLock::new(|| {
        let elapsed = elapsed();
        (since_1970(), elapsed)
    });

    let (since_1970, before) = *START;
    since_1970 + elapsed().saturating_sub(before)
}

/// Returns the current system time since 1970. An earlier one counts as 1970: no lease or permit ends too early by it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is one of the places that ask the system for the time"
)]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
}

/// Waits. Needs the runtime only when the future is polled.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The clock of Linux that advances while the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod clock {
    pub(super) const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
}

/// The clock of Apple's systems that advances while the machine is suspended.
#[cfg(target_vendor = "apple")]
mod clock {
    pub(super) const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
}

/// Time elapsed since the system booted, on Linux and Apple's systems.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
mod elapsed {
    use std::time::Duration;

    use rustix::time::clock_gettime;

    /// Returns the time since an arbitrary moment. It never goes back, and advances while the machine is suspended.
    pub(super) fn elapsed() -> Duration {
        let time = clock_gettime(super::clock::ID);
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
    }
}

/// Elapsed time on other systems. On Windows, it includes the time in which the machine was suspended.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod elapsed {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    /// Returns the time since an arbitrary moment. It never goes back.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is one of the places that ask the system for the time"
    )]
    pub(super) fn elapsed() -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}
