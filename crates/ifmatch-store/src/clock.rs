//! Time, as the driver sees it.

use std::future::Future;
use std::time::Duration;

use ifmatch_core::date::Timestamp;

/// The time, and waiting for it.
///
/// `now` must not go back within a process: a date that a reader was sent would otherwise come again.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Waits.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// The system's clock, held back from going backwards; waits on the tokio runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system for the time")]
    fn now(&self) -> Timestamp {
        use std::sync::atomic::{AtomicU64, Ordering};
        use std::time::SystemTime;

        static LATEST: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
        let latest = LATEST.fetch_max(micros, Ordering::AcqRel);
        Timestamp::from_micros(micros.max(latest))
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(duration)
    }
}
