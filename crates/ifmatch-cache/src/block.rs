//! Work that waits for the system, on a thread of its own kind.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// The result of such work. Dropping it leaves the work running.
pub(crate) struct Blocking<T>(JoinHandle<T>);

/// Starts work that waits for the system.
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
