//! WebAssembly in a JavaScript runtime: workerd, Node, or a browser.

pub use locks::KeyedLocks;
pub use queue::{KeyedQueue, MAX_POLL_INTERVAL, Turn};
pub(crate) use task::spawn;
pub(crate) use time::{interval, since_1970, sleep};

mod locks;
mod queue;
mod task;
mod time;
