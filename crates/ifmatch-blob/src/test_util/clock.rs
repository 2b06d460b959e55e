//! A clock that only a test advances.
#![expect(clippy::expect_used, reason = "it is for tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, async_trait};

/// A clock that advances only when it is set; waits use the runtime's timers.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Moves the clock forward.
    ///
    /// # Panics
    /// Panics if the duration is longer than 584,542 years.
    pub fn advance(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_micros()).expect("short"), Ordering::SeqCst);
    }
}

/// 13 September 2020, half a second after the full second.
impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_600_000_000_500_000)))
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
