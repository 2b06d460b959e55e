//! Work that goes on when the one who waits for it has left, and work that may take only so long. On every platform.

use std::fmt;
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

/// Detached work, to be run to its end. It does not panic.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs detached work, where the platform must be asked another way.
static SPAWNER: OnceLock<fn(Work)> = OnceLock::new();

/// The result of detached work. Dropping it leaves the work running.
#[derive(Debug)]
pub struct Detached<T>(oneshot::Receiver<Option<T>>);

/// Starts work that nobody's leaving can stop, but the end of the runtime. A panic in it stops nothing else, where panics
/// unwind.
///
/// It runs on the tokio runtime that this is called in, or on the JavaScript event loop; or as [`spawn_by`] says.
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
    let work = async move {
        let result = AssertUnwindSafe(work).catch_unwind().await.ok();
        // Nobody may be waiting.
        let _ = tell.send(result);
    };
    match SPAWNER.get() {
        Some(spawn) => spawn(Box::pin(work)),
        None => platform::spawn(work),
    }
    Detached(told)
}

/// Has all detached work of this process run by a function of your own, from now on.
///
/// For platforms that end with a request what it began, unless they are told: a Cloudflare Worker's `waitUntil`. The first
/// call counts; says whether this was it.
///
/// ```no_run
/// assert!(ifmatch_runtime::task::spawn_by(|work| drop(tokio::spawn(work))));
/// ```
pub fn spawn_by(spawner: fn(Work)) -> bool {
    SPAWNER.set(spawner).is_ok()
}

impl<T> Detached<T> {
    /// Waits for the result. None: the work panicked, or there is no runtime to run it, or no longer.
    pub async fn result(self) -> Option<T> {
        self.0.await.ok().flatten()
    }
}

/// The time was over before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it was not done within {:?}", self.0)
    }
}

impl std::error::Error for Elapsed {}

/// Maximum time between looks at the clock. A timer that stops while the machine is suspended fires late.
const LOOK: Duration = Duration::from_secs(1);

/// Does work, and drops it when its time is over by this clock.
///
/// # Errors
/// [`Elapsed`] when the time is over. Work that is done at once is done, however short the time.
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
pub async fn timeout<T>(clock: &impl Clock, limit: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let deadline = clock.now().saturating_add(limit);
    let mut work = pin!(work);
    if let Some(done) = work.as_mut().now_or_never() {
        return Ok(done);
    }
    until(clock, deadline, work).await.map_err(|_| Elapsed(limit))
}

/// Runs a future until a deadline by this clock, then drops it.
///
/// The clock is checked before each poll: once the deadline has passed, the future is not polled again, even if the
/// timer for it stood still, as it may while the machine is suspended.
///
/// # Errors
/// [`Elapsed`] if the deadline has passed.
///
/// ```
/// use ifmatch_runtime::task::until;
/// use ifmatch_runtime::{Clock, SystemClock};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// assert!(until(&SystemClock, SystemClock.now(), async { 3 }).await.is_err());
/// # });
/// ```
pub async fn until<T>(clock: &impl Clock, deadline: Timestamp, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let limit = clock.now().until(deadline);
    let (mut work, mut alarm) = (pin!(work), pin!(alarm(clock, deadline)));
    poll_fn(|cx| {
        if clock.now() >= deadline {
            return Poll::Ready(Err(Elapsed(limit)));
        }
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        alarm.as_mut().poll(cx).map(|()| Err(Elapsed(limit)))
    })
    .await
}

/// Waits until the deadline has passed by the clock or by the timers.
async fn alarm(clock: &impl Clock, deadline: Timestamp) {
    let mut left = clock.now().until(deadline);
    while !left.is_zero() {
        let step = left.min(LOOK);
        clock.sleep(step).await;
        left = clock.now().until(deadline).min(left.saturating_sub(step));
    }
}
