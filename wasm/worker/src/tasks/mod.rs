//! Work that is done to its end, whatever becomes of the client.

pub(crate) mod allowance;
pub(crate) mod answer;
mod run;

use ifmatch_runtime::task::spawn_by;
use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(module = "cloudflare:workers")]
extern "C" {
    /// Has the runtime wait for a promise before it ends what the request began.
    #[wasm_bindgen(js_name = waitUntil)]
    fn wait_until(promise: &Promise);
}

#[wasm_bindgen]
extern "C" {
    /// A promise, with what settles it.
    type Resolvers;

    #[wasm_bindgen(js_namespace = Promise, js_name = withResolvers)]
    fn resolvers() -> Resolvers;

    #[wasm_bindgen(method, getter)]
    fn promise(this: &Resolvers) -> Promise;

    #[wasm_bindgen(method)]
    fn resolve(this: &Resolvers, value: &JsValue);

    #[wasm_bindgen(method)]
    fn reject(this: &Resolvers, error: &JsValue);
}

/// Has the runtime wait for the work of requests whose clients have left, and log what panics: call it when the Worker starts.
pub fn begin() {
    std::panic::set_hook(Box::new(|panic| worker::console_error!("ifmatch: {panic}")));
    spawn_by(|work| {
        let resolvers = resolvers();
        wait_until(&resolvers.promise());
        run::later(async move {
            work.await;
            resolvers.resolve(&JsValue::UNDEFINED);
        });
    });
}

/// Begins work, has the runtime wait for it, and promises what it comes to.
#[cfg(feature = "entry")]
pub(crate) fn to_the_end(work: impl Future<Output = Result<JsValue, JsValue>> + 'static) -> Promise {
    let resolvers = resolvers();
    let promise = resolvers.promise();
    wait_until(&promise);
    run::now(async move {
        match work.await {
            Ok(value) => resolvers.resolve(&value),
            Err(error) => resolvers.reject(&error),
        }
    });
    promise
}
