//! Time, as the driver sees it.

use std::future::Future;
use std::time::Duration;

use ifmatch_core::date::Timestamp;

use crate::platform;

/// The time by two clocks, and waiting for it.
///
/// The *interval clock* decides: when permits and leases end, and which number a change gets. Nothing may step it. The *wall
/// clock* tells the date, and is compared with what others call the time: dates in header fields, signatures, the age of what
/// came from elsewhere.
///
/// Processes that share a register compare each other's deadlines with their own interval clocks; docs/architecture.md says
/// by how much those may differ. A register whose engine has a time can feed a clock of its own that implements this.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time by the interval clock. It must not go back within a process, and must go on while the machine is
    /// suspended.
    fn now(&self) -> Timestamp;

    /// Returns the time of day by the wall clock, which may be set, in both directions. By default it is the same clock.
    fn wall(&self) -> Timestamp {
        self.now()
    }

    /// Waits. A wait may take longer than it should, as when the machine is suspended meanwhile.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// The system's clocks; waits on the tokio runtime, or on the JavaScript event loop.
///
/// The interval clock begins with the time of day at the first call in a process, and goes on at the pace of time: on Linux
/// by `CLOCK_BOOTTIME`, which counts while the machine is suspended. Setting the system's time changes nothing about it. The
/// wall clock is the system's time as it is.
///
/// In workerd time stands still while a request computes, and goes on with its input and output.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(micros(platform::interval()))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(micros(platform::since_1970()))
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        platform::sleep(duration)
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}
