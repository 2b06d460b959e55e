//! Clocks and timers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ifmatch_core::date::Timestamp;

use crate::platform;

/// Two clocks and a timer.
///
/// The *interval clock* determines when permits and leases end, and the number of each change. It must never be
/// stepped. The *wall clock* gives the date. It is compared with times from elsewhere: dates in header fields,
/// signatures, the age of responses.
///
/// Processes that share a register compare each other's deadlines with their own interval clocks; docs/architecture.md
/// states the permitted difference. The time of a register's engine, if it keeps one, takes the place of the interval clock
/// for the deadlines in its records.
///
/// Implement it with [`async_trait`](crate::async_trait), which boxes the future of [`sleep`](Self::sleep).
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Returns the time of the interval clock. It must not go back within a process, and must advance while the machine
    /// is suspended.
    fn now(&self) -> Timestamp;

    /// Returns the time of day by the wall clock, which may be set in either direction. Defaults to the interval clock.
    fn wall(&self) -> Timestamp {
        self.now()
    }

    /// Waits for the given time. A wait may take longer, for example if the machine is suspended.
    async fn sleep(&self, duration: Duration);
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The system's clocks, with timers of the tokio runtime or the JavaScript event loop.
///
/// The interval clock starts at the time of day of the first call in a process and advances steadily: on Linux by
/// `CLOCK_BOOTTIME`, on macOS by `CLOCK_MONOTONIC`, on Windows by `QueryPerformanceCounter`, which all include time spent suspended.
/// Setting the system time doesn't affect it. The wall clock is the system time.
///
/// In workerd, time doesn't advance while a request computes, only with its I/O.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(micros(platform::interval()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(micros(platform::since_1970()))
    }

    async fn sleep(&self, duration: Duration) {
        platform::sleep(duration).await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        C::now(self)
    }

    fn wall(&self) -> Timestamp {
        C::wall(self)
    }

    async fn sleep(&self, duration: Duration) {
        C::sleep(self, duration).await;
    }
}

fn micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(duration.subsec_micros().into())
}
