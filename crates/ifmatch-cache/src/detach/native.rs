//! Detached work on the tokio runtime.

use std::future::Future;

use tokio::task::JoinHandle;

/// The result of detached work. Dropping it leaves the work running.
pub(crate) struct Detached<T>(JoinHandle<T>);

/// Starts work that nobody's leaving can stop, but the end of the runtime.
pub(crate) fn detach<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Detached<T> {
    Detached(tokio::spawn(work))
}

impl<T> Detached<T> {
    /// Waits for the result. None: the work panicked, or the runtime ended.
    pub(crate) async fn result(self) -> Option<T> {
        self.0.await.ok()
    }
}
