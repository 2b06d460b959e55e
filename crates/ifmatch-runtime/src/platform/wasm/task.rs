//! Tasks of the JavaScript event loop.

use std::future::Future;

/// Starts a task.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    wasm_bindgen_futures::spawn_local(work);
}
