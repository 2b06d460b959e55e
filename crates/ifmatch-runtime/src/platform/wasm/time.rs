//! Time by `performance.now` and `Date.now`, waits by `setTimeout`.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use js_sys::{Function, Reflect};
use send_wrapper::SendWrapper;
use tokio::sync::oneshot;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_time::{Instant, SystemTime};

/// Maximum delay of `setTimeout`, in milliseconds.
const LONGEST: u32 = i32::MAX.cast_unsigned();

/// Returns the system's time since 1970 at the first call, plus the time elapsed since that call. It never goes back:
/// it doesn't advance when workerd's `performance.now` goes back because the system time was set.
pub(crate) fn interval() -> Duration {
    static START: LazyLock<(Duration, Instant)> = LazyLock::new(|| (since_1970(), Instant::now()));
    /// Latest time returned so far, in microseconds since the start.
    static LATEST: AtomicU64 = AtomicU64::new(0);

    let (since_1970, start) = &*START;
    let now = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    *since_1970 + Duration::from_micros(LATEST.fetch_max(now, Ordering::AcqRel).max(now))
}

/// Returns the current system time since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Waits, in whole milliseconds. The timer starts when the future is first polled.
pub(crate) fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
    SendWrapper::new(async move {
        let mut left = duration.as_micros().div_ceil(1_000);
        while left > 0 {
            let part = u32::try_from(left).unwrap_or(LONGEST).min(LONGEST);
            Timer::set(part).over().await;
            left -= u128::from(part);
        }
    })
}

/// A timer. Dropping it clears it: a Durable Object stays in memory as long as a timer runs.
struct Timer {
    id: JsValue,
    over: oneshot::Receiver<()>,
    /// The callback of the timer.
    _call: Closure<dyn FnMut()>,
}

impl Timer {
    /// Sets a timer, in milliseconds.
    fn set(milliseconds: u32) -> Self {
        let (tell, over) = oneshot::channel();
        let call = Closure::once_assert_unwind_safe(move || {
            // The receiver may have been dropped.
            let _ = tell.send(());
        });
        let id =
            SET.with(|set| set.call2(&JsValue::UNDEFINED, call.as_ref(), &milliseconds.into()));
        Self {
            id: id.unwrap_or_default(),
            over,
            _call: call,
        }
    }

    /// Waits until the timer fires.
    async fn over(mut self) {
        // The sender is in this timer, so receiving can't fail.
        let _ = (&mut self.over).await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // Clearing a timer doesn't fail.
        let _ = CLEAR.with(|clear| clear.call1(&JsValue::UNDEFINED, &self.id));
    }
}

thread_local! {
    static SET: Function = global("setTimeout");
    static CLEAR: Function = global("clearTimeout");
}

/// Returns a global function that every JavaScript runtime has.
fn global(name: &str) -> Function {
    Reflect::get(&js_sys::global(), &name.into())
        .unwrap_or_default()
        .unchecked_into()
}
