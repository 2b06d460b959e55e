//! Time by the system's clocks, waits by the tokio runtime's timer.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// The time since some moment. It never goes back.
#[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system for the time")]
pub(crate) fn elapsed() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// The time since 1970, as the system has it at the moment.
#[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system for the time")]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Waits. The timer is asked for only once that is waited for.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
