//! Detached work on the tokio runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

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

/// Work that waits for the system, on a thread of its own kind.
pub(crate) struct Blocking<T>(JoinHandle<T>);

/// Starts such work.
pub(crate) fn block<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    Blocking(tokio::task::spawn_blocking(work))
}

/// None: the work panicked, or the runtime ended.
impl<T> Future for Blocking<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}
