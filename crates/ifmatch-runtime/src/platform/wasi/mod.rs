//! A component of WASI 0.3: one thread, and tasks that may wake each other.

use std::convert::Infallible;
use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use send_wrapper::SendWrapper;
use wasip3::clocks::{monotonic_clock, system_clock};
use wasip3::random::random;

pub use locks::KeyedLocks;
pub use queue::{KeyedQueue, MAX_POLL_INTERVAL, Turn};

#[path = "../native/locks.rs"]
mod locks;
#[path = "../native/queue.rs"]
mod queue;

/// The host always provides random bytes.
pub(crate) type FillError = Infallible;

/// Fills the bytes with random ones.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), FillError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // The host may return fewer.
        let random = random::get_random_bytes(u64::try_from(rest.len()).unwrap_or(u64::MAX));
        let count = random.len().min(rest.len());
        rest[..count].copy_from_slice(&random[..count]);
        filled += count;
    }
    Ok(())
}

/// Spawns a task that goes on when the request has been answered, or was cancelled.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    drop(wasip3::spawn_local(work));
}

/// Returns the system's time since 1970 at the first call, plus the time elapsed since that call.
pub(crate) fn interval() -> Duration {
    static START: LazyLock<(Duration, u64)> =
        LazyLock::new(|| (since_1970(), monotonic_clock::now()));

    let (since_1970, start) = &*START;
    *since_1970 + Duration::from_nanos(monotonic_clock::now().saturating_sub(*start))
}

/// Returns the current system time since 1970.
pub(crate) fn since_1970() -> Duration {
    let now = system_clock::now();
    Duration::new(now.seconds.try_into().unwrap_or_default(), now.nanoseconds)
}

/// Waits. The timer starts when the future is first polled.
pub(crate) fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
    SendWrapper::new(monotonic_clock::wait_for(
        duration.as_nanos().try_into().unwrap_or(u64::MAX),
    ))
}
