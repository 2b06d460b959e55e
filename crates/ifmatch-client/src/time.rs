//! Waiting for a time.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;

/// Longest sleep without a look at the clock: a timer stands still while the machine is suspended.
const MAX_STEP: Duration = Duration::from_secs(1);

/// Waits until a time of the interval clock, which also advances while the machine is suspended.
pub(crate) async fn sleep_until(clock: &impl Clock, time: Timestamp) {
    loop {
        let left = clock.now().until(time);
        if left.is_zero() {
            return;
        }
        clock.sleep(left.min(MAX_STEP)).await;
    }
}
