//! Timeouts for clients that send or read content too slowly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that a client must send or read within the timeout. A slower client occupies a connection without using it.
pub(crate) const MIN_PROGRESS: u64 = 1024;

/// Timeout beyond which waits are unlimited.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A timeout for a client, restarted after each [`MIN_PROGRESS`] bytes.
#[derive(Debug)]
pub(crate) struct ProgressTimeout {
    allowance: Allowance,
    /// Created by the first wait, since most content never waits. It may fire early because resetting it for each wait
    /// is expensive.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A client's remaining time.
///
/// Only time spent waiting for the client counts; slow disks and upstreams don't.
#[derive(Debug)]
struct Allowance {
    timeout: Duration,
    /// Time left at the start of the next wait.
    left: Duration,
    /// End of the current wait.
    deadline: Option<Instant>,
    /// Bytes since the timeout was last restarted.
    progress: u64,
}

impl ProgressTimeout {
    /// Allows `timeout` in total for each [`MIN_PROGRESS`] bytes.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            allowance: Allowance::new(timeout),
            timer: None,
        }
    }

    /// Ends a wait after the transfer of this number of bytes.
    pub(crate) fn transferred(&mut self, bytes: u64) {
        self.allowance.transferred(bytes, Instant::now);
    }

    /// Continues a wait. Ready when the client's time has expired.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.allowance.deadline(Instant::now);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

impl Allowance {
    fn new(timeout: Duration) -> Self {
        let timeout = timeout.min(FOREVER);
        Self {
            timeout,
            left: timeout,
            deadline: None,
            progress: 0,
        }
    }

    /// Ends a wait, and restarts the timeout after enough bytes.
    fn transferred(&mut self, bytes: u64, now: impl FnOnce() -> Instant) {
        if let Some(deadline) = self.deadline.take() {
            self.left = deadline.saturating_duration_since(now());
        }
        self.progress += bytes;
        if self.progress >= MIN_PROGRESS {
            self.progress = 0;
            self.left = self.timeout;
        }
    }

    /// Returns the end of the current wait, starting one if necessary.
    fn deadline(&mut self, now: impl FnOnce() -> Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| now() + self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns how many of 10 seconds a client may take at this rate, with the given delay on our side in between.
    fn seconds(bytes: u64, ours: Duration) -> Option<u64> {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(10 * SECOND);
        for second in 1..1_000 {
            let deadline = allowance.deadline(|| now);
            now += SECOND;
            if deadline <= now {
                return Some(second);
            }
            allowance.transferred(bytes, || now);
            now += ours;
        }
        None
    }

    #[test]
    fn the_timeout_restarts_after_each_kibibyte() {
        assert_eq!(seconds(0, Duration::ZERO), Some(10));
        assert_eq!(seconds(1, Duration::ZERO), Some(10));
        assert_eq!(seconds(MIN_PROGRESS / 9, Duration::ZERO), Some(10));
        assert_eq!(seconds(MIN_PROGRESS / 8, Duration::ZERO), None);
        assert_eq!(seconds(MIN_PROGRESS, Duration::ZERO), None);
    }

    #[test]
    fn time_spent_by_the_server_does_not_count() {
        assert_eq!(seconds(0, 100 * SECOND), Some(10));
        assert_eq!(seconds(MIN_PROGRESS / 8, 100 * SECOND), None);
    }

    #[tokio::test]
    async fn a_wait_expires() {
        let mut progress_timeout = ProgressTimeout::new(Duration::from_millis(2));
        progress_timeout.transferred(1);
        std::future::poll_fn(|cx| progress_timeout.poll_expired(cx)).await;
        progress_timeout.transferred(MIN_PROGRESS);
        std::future::poll_fn(|cx| progress_timeout.poll_expired(cx)).await;
    }
}
