//! The time that has elapsed, on systems without a clock that is known to count while the machine is suspended.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Returns the time since some moment. It never goes back.
#[expect(clippy::disallowed_methods, reason = "this is one of the places that ask the system for the time")]
pub(super) fn elapsed() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
