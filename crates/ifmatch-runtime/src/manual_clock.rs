//! A clock that only a test advances.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ifmatch_core::date::Timestamp;
use tokio::sync::watch;

use crate::{Clock, platform};

/// A clock that only a test advances. Clones share the time.
///
/// By default, it starts on 13 September 2020, half a second after a full second, and a wait ends when the clock has been
/// advanced far enough. With [`with_timers`](Self::with_timers), waits use the runtime's timers instead.
///
/// ```
/// use std::time::Duration;
///
/// use ifmatch_runtime::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// let begin = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(begin.until(clock.now()), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    /// The interval clock, in microseconds since the Unix epoch.
    now: Arc<watch::Sender<u64>>,
    /// The wall clock less the interval clock, in seconds.
    skew: Arc<AtomicI64>,
    has_timers: bool,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::from_micros(1_600_000_000_500_000))
    }
}

impl ManualClock {
    /// Creates a clock that shows `start`.
    pub fn at(start: Timestamp) -> Self {
        Self {
            now: Arc::new(watch::Sender::new(start.micros())),
            skew: Arc::default(),
            has_timers: false,
        }
    }

    /// Makes waits use the runtime's timers, which this clock doesn't advance.
    #[must_use]
    pub fn with_timers(self) -> Self {
        Self {
            has_timers: true,
            ..self
        }
    }

    /// Advances both clocks, and ends the waits that are then over.
    pub fn advance(&self, duration: Duration) {
        self.now.send_modify(|now| {
            *now = Timestamp::from_micros(*now)
                .saturating_add(duration)
                .micros();
        });
    }

    /// Sets both clocks, also back, to see what a clock that breaks its contract does.
    pub fn set(&self, time: Timestamp) {
        self.now.send_replace(time.micros());
    }

    /// Sets the wall clock ahead of the interval clock by these seconds, or behind it if negative.
    pub fn skew_wall(&self, seconds: i64) {
        self.skew.store(seconds, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(*self.now.borrow())
    }

    fn wall(&self) -> Timestamp {
        let skew = self.skew.load(Ordering::SeqCst).saturating_mul(1_000_000);
        Timestamp::from_micros(self.now().micros().saturating_add_signed(skew))
    }

    async fn sleep(&self, duration: Duration) {
        if self.has_timers {
            return platform::sleep(duration).await;
        }
        let until = self.now().saturating_add(duration).micros();
        // The channel stays open as long as this clock exists.
        let _ = self.now.subscribe().wait_for(|now| *now >= until).await;
    }
}
