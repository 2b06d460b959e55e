//! Time, as the driver sees it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch_core::date::Timestamp;

use crate::platform;

/// The time, and waiting for it.
///
/// `now` must not go back within a process: a date that a reader was sent would otherwise come again.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// The system's clock; waits on the tokio runtime, or on the JavaScript event loop.
///
/// It goes forward with the system's time, at most a millisecond later, and never back: when the system's time is set back,
/// it goes on from where it is, at the pace of time.
///
/// In workerd time stands still while a request computes, and goes on with its input and output.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// How long the system's time may have been set forward before [`SystemClock`] sees it.
const LAG: Duration = Duration::from_millis(1);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        /// By how much the system's time was ahead of the time that has elapsed, at the most, in microseconds.
        static AHEAD: AtomicU64 = AtomicU64::new(0);
        /// When to look again, in microseconds of the time that has elapsed.
        static LOOK: AtomicU64 = AtomicU64::new(0);

        let elapsed = micros(platform::elapsed());
        if elapsed >= LOOK.load(Ordering::Acquire) {
            let system = micros(platform::since_1970());
            AHEAD.fetch_max(system.saturating_sub(elapsed), Ordering::AcqRel);
            // Whoever sees this sees what is ahead, too.
            LOOK.store(elapsed.saturating_add(micros(LAG)), Ordering::Release);
        }
        Timestamp::from_micros(AHEAD.load(Ordering::Acquire).saturating_add(elapsed))
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        platform::sleep(duration)
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}
