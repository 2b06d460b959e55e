//! Tasks of the tokio runtime.

use std::future::Future;

use tokio::runtime::Handle;

/// Starts a task. Without a runtime it is dropped.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(work));
    }
}
