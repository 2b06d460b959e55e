//! Work that is done to its end, whatever becomes of the client.

use std::panic::AssertUnwindSafe;

use ifmatch_store::task::spawn_by;
use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::future_to_promise;

#[wasm_bindgen(module = "cloudflare:workers")]
extern "C" {
    /// Has the runtime wait for a promise before it ends what the request began.
    #[wasm_bindgen(js_name = waitUntil)]
    fn wait_until(promise: &Promise);
}

/// Has the runtime wait for the work of requests whose clients have left, and log what panics: call it when the Worker starts.
pub fn begin() {
    std::panic::set_hook(Box::new(|panic| worker::console_error!("ifmatch: {panic}")));
    spawn_by(|work| {
        let work = async {
            work.await;
            Ok(JsValue::UNDEFINED)
        };
        drop(to_the_end(work));
    });
}

/// Begins work, has the runtime wait for it, and promises what it comes to.
pub(crate) fn to_the_end(work: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Promise {
    let promise = future_to_promise(AssertUnwindSafe(work));
    wait_until(&promise);
    promise
}
