//! Detached tasks, which outlive their callers, and time limits.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use ifmatch_core::date::Timestamp;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::platform;

/// Detached work. It must be run to completion and doesn't panic.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The function that runs detached work, if it isn't the platform's own.
static SPAWNER: OnceLock<fn(Work)> = OnceLock::new();

/// A handle to the result of detached work. Dropping it doesn't stop the work.
#[derive(Debug)]
pub struct Detached<T>(oneshot::Receiver<Option<T>>);

/// Spawns a task that outlives its caller, until the end of the runtime. A panic in the task affects nothing else if panics
/// unwind.
///
/// The task runs on the current tokio runtime or the JavaScript event loop, or with the function set by [`spawn_by`].
///
/// ```
/// use ifmatch_runtime::task::detach;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sum = detach(async { 1 + 2 });
/// assert_eq!(sum.result().await, Some(3));
/// # });
/// ```
pub fn detach<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Detached<T> {
    let (tell, told) = oneshot::channel();
    // Not an async block, which would hold the work twice: as what it captures, and as what it awaits.
    let work = AssertUnwindSafe(work).catch_unwind().map(|result| {
        // The handle may have been dropped.
        let _ = tell.send(result.ok());
    });
    match SPAWNER.get() {
        Some(spawn) => spawn(Box::pin(work)),
        None => platform::spawn(work),
    }
    Detached(told)
}

/// Sets the function that runs all detached work of this process from now on. Returns `true` for the first call; later
/// calls have no effect.
///
/// For platforms that stop work at the end of a request unless it is registered, such as `waitUntil` in Cloudflare Workers.
pub fn spawn_by(spawner: fn(Work)) -> bool {
    SPAWNER.set(spawner).is_ok()
}

impl<T> Detached<T> {
    /// Waits for the result. Returns `None` if the work panicked, or if there is no runtime or it has ended.
    pub async fn result(self) -> Option<T> {
        self.0.await.ok().flatten()
    }
}

/// The time limit elapsed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not done within {0:?}")]
pub struct Elapsed(Duration);

/// Maximum time between checks of the clock. A timer that stops while the machine is suspended fires late.
const MAX_STEP: Duration = Duration::from_secs(1);

/// Runs a future with a time limit by this clock, then drops it.
///
/// # Errors
/// [`Elapsed`] if the limit is exceeded. A future that is ready immediately succeeds even with a limit of zero.
///
/// ```
/// use std::future::pending;
/// use std::time::Duration;
///
/// use ifmatch_runtime::SystemClock;
/// use ifmatch_runtime::task::timeout;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// assert_eq!(timeout(&SystemClock, Duration::ZERO, async { 3 }).await, Ok(3));
/// assert!(timeout(&SystemClock, Duration::from_millis(1), pending::<()>()).await.is_err());
/// # });
/// ```
pub async fn timeout<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let deadline = clock.now().saturating_add(limit);
    let mut work = pin!(work);
    if let Some(done) = work.as_mut().now_or_never() {
        return Ok(done);
    }
    until(clock, deadline, work)
        .await
        .map_err(|_| Elapsed(limit))
}

/// Runs a future until a deadline by this clock, then drops it.
///
/// The clock is checked before each poll: once the deadline has passed, the future isn't polled again, even if the
/// timer for it stood still, as it may while the machine is suspended.
///
/// # Errors
/// [`Elapsed`] if the deadline has passed.
pub async fn until<T>(
    clock: &dyn Clock,
    deadline: Timestamp,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    until_by(|| clock.now(), clock, deadline, work).await
}

/// Runs a future like [`until`], until a deadline by the time that `now` returns. The clock only provides the timer.
///
/// # Errors
/// [`Elapsed`] if the deadline has passed.
pub async fn until_by<T>(
    now: impl Fn() -> Timestamp,
    clock: &dyn Clock,
    deadline: Timestamp,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let limit = now().until(deadline);
    let (mut work, mut alarm) = (pin!(work), pin!(alarm(&now, clock, deadline)));
    poll_fn(|cx| {
        if now() >= deadline {
            return Poll::Ready(Err(Elapsed(limit)));
        }
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        alarm.as_mut().poll(cx).map(|()| Err(Elapsed(limit)))
    })
    .await
}

/// Waits until the deadline has passed by `now` or by the timers.
async fn alarm(now: impl Fn() -> Timestamp, clock: &dyn Clock, deadline: Timestamp) {
    let mut left = now().until(deadline);
    while !left.is_zero() {
        let step = left.min(MAX_STEP);
        clock.sleep(step).await;
        left = now().until(deadline).min(left.saturating_sub(step));
    }
}
