//! Work that runs to completion, even if the client disconnects.

pub(crate) mod subrequests;

use std::panic::AssertUnwindSafe;

use futures_util::future::{Either, select};
use ifmatch_runtime::task::spawn_by;
use js_sys::Promise;
use js_sys::futures::future_to_promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::Delay;

use subrequests::SubrequestBudget;

#[wasm_bindgen(module = "cloudflare:workers")]
extern "C" {
    /// Keeps the current request's context alive until a promise settles.
    #[wasm_bindgen(js_name = waitUntil)]
    fn wait_until(promise: &Promise);
}

/// The time limit passed before there was a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0} ms")]
pub(crate) struct TimedOut(u32);

/// Makes detached work outlive its request, and logs panics. Call this once, when the Worker starts.
pub fn begin() {
    std::panic::set_hook(Box::new(|panic| worker::console_error!("ifmatch: {panic}")));
    spawn_by(|work| {
        drop(run_to_completion(async {
            work.await;
            Ok(JsValue::UNDEFINED)
        }));
    });
}

/// Runs work, and returns a promise of its result. The runtime doesn't cancel it when the client disconnects.
pub(crate) fn run_to_completion(
    work: impl Future<Output = Result<JsValue, JsValue>> + 'static,
) -> Promise {
    let promise = future_to_promise(AssertUnwindSafe(
        SubrequestBudget::of_current().for_work(work),
    ));
    wait_until(&promise);
    promise
}

/// Drops work that takes longer than `milliseconds`. Its effects may still take place.
pub(crate) async fn timeout<T>(
    milliseconds: u32,
    work: impl Future<Output = T>,
) -> Result<T, TimedOut> {
    let delay = Delay::from(std::time::Duration::from_millis(milliseconds.into()));
    match select(std::pin::pin!(work), delay).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(TimedOut(milliseconds)),
    }
}
