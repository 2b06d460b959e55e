//! Pauses of a handler between its check and its write, for the test kit.

use std::future::Future;

#[cfg(feature = "testing")]
pub(crate) use self::pause::Pause;

/// Runs a handler, and pauses it if its request asks for that.
#[cfg(feature = "testing")]
pub(crate) async fn paused<F: Future>(extensions: &http::Extensions, handler: F) -> F::Output {
    match extensions.get::<Pause>() {
        Some(pause) => pause.run(handler).await,
        None => handler.await,
    }
}

/// Runs a handler.
#[cfg(not(feature = "testing"))]
pub(crate) fn paused<F: Future>(_: &http::Extensions, handler: F) -> F {
    handler
}

#[cfg(feature = "testing")]
mod pause {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use futures_util::task::AtomicWaker;

    /// A pause after this number of polls. Clones are the same pause.
    #[derive(Clone)]
    pub(crate) struct Pause {
        polls: usize,
        reached: Arc<Flag>,
        ended: Arc<Flag>,
    }

    /// A flag that one task sets, and another waits for.
    #[derive(Default)]
    struct Flag {
        is_set: AtomicBool,
        waiting: AtomicWaker,
    }

    impl Flag {
        fn set(&self) {
            self.is_set.store(true, Ordering::Release);
            self.waiting.wake();
        }

        /// Returns `true` if it is set. Otherwise wakes the task then.
        fn is_set(&self, cx: &Context<'_>) -> bool {
            self.waiting.register(cx.waker());
            self.is_set.load(Ordering::Acquire)
        }
    }

    impl Pause {
        pub(crate) fn at(polls: usize) -> Self {
            Self {
                polls,
                reached: Arc::default(),
                ended: Arc::default(),
            }
        }

        /// Waits until the handler is paused. It never is if it ends before.
        pub(crate) async fn reached(&self) {
            poll_fn(|cx| {
                if self.reached.is_set(cx) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }

        pub(crate) fn end(&self) {
            self.ended.set();
        }

        pub(crate) async fn run<F: Future>(&self, handler: F) -> F::Output {
            let (mut handler, mut polls) = (pin!(handler), Some(0));
            poll_fn(|cx| {
                if polls == Some(self.polls) {
                    self.reached.set();
                    if !self.ended.is_set(cx) {
                        return Poll::Pending;
                    }
                    polls = None;
                }
                polls = polls.map(|polls| polls + 1);
                handler.as_mut().poll(cx)
            })
            .await
        }
    }
}
