//! Tasks of the tokio runtime.

use std::future::Future;

use tokio::runtime::Handle;

/// Spawns a task. Without a runtime, the task is dropped.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(work));
    }
}
