//! The system's clocks and the timer of the tokio runtime.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use super::elapsed::elapsed;

/// Returns the system's time since 1970 at the first call, plus the time elapsed since that call. It never goes back,
/// and setting the system time does not affect it.
pub(crate) fn interval() -> Duration {
    /// Time of day and elapsed time at the first call.
    static START: LazyLock<(Duration, Duration)> = LazyLock::new(|| {
        let elapsed = elapsed();
        (since_1970(), elapsed)
    });

    let (since_1970, before) = *START;
    since_1970 + elapsed().saturating_sub(before)
}

/// Returns the current system time since 1970.
#[expect(clippy::disallowed_methods, reason = "this is one of the places that ask the system for the time")]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Waits. Needs the runtime only when the future is polled.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
