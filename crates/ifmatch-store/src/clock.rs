//! Time, as the driver sees it.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

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

/// The system's clock; waits on the tokio runtime.
///
/// It goes forward with the system's time and never back: when the system's time is set back, it goes on from where
/// it is, at the pace of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system for the time")]
    fn now(&self) -> Timestamp {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        static AHEAD: AtomicU64 = AtomicU64::new(0);

        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let elapsed = micros(START.elapsed());
        let system = micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let ahead = system.saturating_sub(elapsed);
        let ahead = ahead.max(AHEAD.fetch_max(ahead, Ordering::AcqRel));
        Timestamp::from_micros(ahead.saturating_add(elapsed))
    }

    // Asks for the runtime's timer only when it is waited for.
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
