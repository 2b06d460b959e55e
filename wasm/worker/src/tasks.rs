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
        let work = async move {
            work.await;
            Ok(JsValue::UNDEFINED)
        };
        wait_until(&future_to_promise(AssertUnwindSafe(work)));
    });
}
