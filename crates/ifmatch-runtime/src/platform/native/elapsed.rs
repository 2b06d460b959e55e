//! Elapsed time on systems without a clock known to advance while the machine is suspended.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Returns the time since an arbitrary moment. It never goes back.
#[expect(clippy::disallowed_methods, reason = "this is one of the places that ask the system for the time")]
pub(super) fn elapsed() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
