//! Tasks of the JavaScript event loop.

use std::future::Future;

/// Spawns a task.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    wasm_bindgen_futures::spawn_local(work);
}
