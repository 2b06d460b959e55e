//! WebAssembly in a JavaScript runtime: workerd, Node, or a browser.

use std::future::Future;

pub use locks::KeyedLocks;
pub use queue::{KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub(crate) use random::{FillError, fill};
pub(crate) use time::{interval, since_1970, sleep};

mod locks;
mod queue;
#[path = "../native/random.rs"]
mod random;
mod time;

/// Spawns a task.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    wasm_bindgen_futures::spawn_local(work);
}
