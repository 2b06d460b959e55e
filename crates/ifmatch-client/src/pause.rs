//! Pauses between attempts, and waits for a time.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, jittered};

/// The first pause, before its random part is taken off.
const FIRST: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);
/// Longest sleep without a look at the clock: a timer stands still while the machine is suspended.
const MAX_STEP: Duration = Duration::from_secs(1);

/// The pauses of one operation: each up to twice as long as the one before, half of it random.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    pauses: u32,
}

impl Backoff {
    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        // The seventh doubling exceeds the longest pause, so the bound only keeps the shift from overflowing.
        let full = FIRST.saturating_mul(1 << self.pauses.min(10)).min(LONGEST);
        self.pauses += 1;
        jittered(full)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_second() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| *pause >= LONGEST / 2 && *pause <= LONGEST),
            "{pauses:?}"
        );
        assert!(
            pauses[10..].windows(2).any(|pair| pair[0] != pair[1]),
            "no jitter: {pauses:?}"
        );
    }
}
