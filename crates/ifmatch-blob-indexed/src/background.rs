//! Work that continues after its caller is gone.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use ifmatch_runtime::task::detach;

use ifmatch_blob::store::{StoreError, StoreErrorKind};

/// Work with a result.
type Work<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Completes a change even if the client disconnects, since its outcome decides which file to remove.
///
/// The caller polls the work. Only if the caller drops it does the work become a separate task, which is rare.
pub(super) fn in_the_background<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> + Send {
    let work = AssertUnwindSafe(work).catch_unwind().map(|ended| {
        ended.unwrap_or_else(|_| {
            Err(StoreError::new(
                StoreErrorKind::OutcomeUnknown,
                "the write has panicked",
            ))
        })
    });
    Background(Some(Box::pin(work)))
}

/// Work in progress, or `None` once it has ended.
struct Background<T: Send + 'static>(Option<Work<T>>);

impl<T: Send + 'static> Future for Background<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.0 else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Background<T> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            drop(detach(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn abandoned_work_continues() {
        let (go_on, told) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut work = Box::pin(in_the_background(async move {
            let _ = told.await;
            done.send(())
                .map_err(|()| StoreErrorKind::OutcomeUnknown.into())
        }));
        assert!((&mut work).now_or_never().is_none());
        drop(work);
        go_on.send(()).expect("the work waits");
        assert_eq!(is_done.await, Ok(()));
    }

    #[tokio::test]
    async fn work_that_was_never_polled_is_done() {
        let (done, is_done) = oneshot::channel();
        drop(in_the_background(async move {
            done.send(())
                .map_err(|()| StoreErrorKind::OutcomeUnknown.into())
        }));
        assert_eq!(is_done.await, Ok(()));
    }

    #[tokio::test]
    async fn work_that_panicked_has_an_unknown_outcome() {
        let ended = in_the_background::<()>(async { panic!("told to") }).await;
        assert_eq!(
            ended.map_err(|error| error.kind().clone()),
            Err(StoreErrorKind::OutcomeUnknown)
        );
    }
}
