//! How long to wait for a client that sends or takes content too slowly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that a client must send, or take, within the timeout. A slower client holds a connection instead of using it.
pub(crate) const LEAST_PROGRESS: u64 = 1024;

/// A timeout that is longer than this never ends.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Waits for a client, and starts again with each [`LEAST_PROGRESS`] bytes that move.
#[derive(Debug)]
pub(crate) struct Patience {
    allowance: Allowance,
    /// Made by the first wait: most content never waits. It may ring early, as resetting it for each wait would be dear.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The time that a client has left.
///
/// Only time that is spent on waiting for the client counts: it is not to blame for a slow disk or upstream.
#[derive(Debug)]
struct Allowance {
    timeout: Duration,
    /// Time that is left at the beginning of the next wait.
    left: Duration,
    /// End of the current wait.
    deadline: Option<Instant>,
    /// Bytes since the timeout was last started.
    progress: u64,
}

impl Patience {
    /// Waits for so long at most, in total, for each [`LEAST_PROGRESS`] bytes.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { allowance: Allowance::new(timeout), timer: None }
    }

    /// Ends a wait: so many bytes have moved.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.allowance.moved(bytes, Instant::now);
    }

    /// Waits on; ready when the client has had its time.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.allowance.deadline(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
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
        Self { timeout, left: timeout, deadline: None, progress: 0 }
    }

    fn moved(&mut self, bytes: u64, now: impl FnOnce() -> Instant) {
        if let Some(deadline) = self.deadline.take() {
            self.left = deadline.saturating_duration_since(now());
        }
        self.progress += bytes;
        if self.progress >= LEAST_PROGRESS {
            self.progress = 0;
            self.left = self.timeout;
        }
    }

    /// The end of the wait that goes on, or begins now.
    fn deadline(&mut self, now: impl FnOnce() -> Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| now() + self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds that a client may take, of 10, when so many bytes come every second, and between them so much time passes on our side.
    fn seconds(bytes: u64, ours: Duration) -> Option<u64> {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(10 * SECOND);
        for second in 1..1_000 {
            let deadline = allowance.deadline(|| now);
            now += SECOND;
            if deadline <= now {
                return Some(second);
            }
            allowance.moved(bytes, || now);
            now += ours;
        }
        None
    }

    #[test]
    fn a_client_gets_its_time_for_each_kibibyte() {
        assert_eq!(seconds(0, Duration::ZERO), Some(10));
        assert_eq!(seconds(1, Duration::ZERO), Some(10));
        assert_eq!(seconds(LEAST_PROGRESS / 9, Duration::ZERO), Some(10));
        assert_eq!(seconds(LEAST_PROGRESS / 8, Duration::ZERO), None);
        assert_eq!(seconds(LEAST_PROGRESS, Duration::ZERO), None);
    }

    #[test]
    fn a_client_is_not_blamed_for_our_time() {
        assert_eq!(seconds(0, 100 * SECOND), Some(10));
        assert_eq!(seconds(LEAST_PROGRESS / 8, 100 * SECOND), None);
    }

    #[tokio::test]
    async fn the_wait_ends() {
        let mut patience = Patience::new(Duration::from_millis(2));
        patience.moved(1);
        std::future::poll_fn(|cx| patience.poll_end(cx)).await;
        patience.moved(LEAST_PROGRESS);
        std::future::poll_fn(|cx| patience.poll_end(cx)).await;
    }
}
