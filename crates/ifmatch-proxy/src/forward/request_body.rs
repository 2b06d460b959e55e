//! A request's content, lent to a connection and returned if the connection has not begun to send it.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::Semaphore;

use super::trailers::CleanTrailers;

/// Any error of a body.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The client stopped sending the body.
#[derive(Debug, thiserror::Error)]
#[error("the client stopped sending the body: {0}")]
pub(crate) struct Interrupted(BoxError);

type Content = UnsyncBoxBody<Bytes, Interrupted>;

/// A request's content, which can be offered to several servers until one begins to read it.
pub(crate) struct RequestBody(Arc<Shared>);

/// Holds the content while it is not lent.
struct Shared {
    empty: bool,
    content: Mutex<Option<Content>>,
    /// Closed once all content was sent, or none can be sent any more.
    end: Semaphore,
}

/// The content as sent by a connection.
pub(crate) struct LentBody {
    shared: Arc<Shared>,
    content: Option<Content>,
    begun: bool,
}

impl RequestBody {
    /// Takes over a request's content.
    pub(crate) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        let content = CleanTrailers::new(body).map_err(|error| Interrupted(error.into())).boxed_unsync();
        Self(Arc::new(Shared { empty: false, content: Mutex::new(Some(content)), end: Semaphore::new(0) }))
    }

    /// Creates empty content.
    pub(crate) fn empty() -> Self {
        let end = Semaphore::new(0);
        end.close();
        Self(Arc::new(Shared { empty: true, content: Mutex::default(), end }))
    }

    /// Returns `true` if there is no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.empty
    }

    /// Returns `true` if no part of the content has been read.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.empty || self.0.content().is_some()
    }

    /// Lends the content to a connection. Lends nothing if a connection has begun to read it.
    pub(crate) fn lend(&self) -> LentBody {
        LentBody { shared: Arc::clone(&self.0), content: self.0.content().take(), begun: false }
    }

    /// Waits until all content has been sent.
    pub(crate) async fn wait_for_end(&self) {
        // Fails once the semaphore is closed.
        drop(self.0.end.acquire().await);
    }
}

impl Shared {
    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(content) = self.content.take().filter(|_| !self.begun) {
            *self.shared.content() = Some(content);
        }
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        self.begun = true;
        let Some(content) = &mut self.content else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *content).poll_frame(cx));
        if matches!(&frame, None | Some(Err(_))) || content.is_end_stream() {
            self.shared.end.close();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.content.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl fmt::Debug for LentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBody").field("begun", &self.begun).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn content_can_be_recovered_until_it_is_read() {
        let outgoing = RequestBody::new(Full::new(Bytes::from_static(b"order")));
        let lent = outgoing.lend();
        assert!(!outgoing.is_whole() && !lent.is_end_stream());
        drop(lent);
        assert!(outgoing.is_whole());
        let mut lent = outgoing.lend();
        assert_eq!(lent.frame().await.expect("a frame").expect("no error").into_data().expect("data"), "order");
        drop(lent);
        assert!(!outgoing.is_whole());
        outgoing.wait_for_end().await;
    }

    #[tokio::test]
    async fn an_empty_body_can_be_sent_any_number_of_times() {
        let outgoing = RequestBody::new(Full::new(Bytes::new()));
        for _ in 0..2 {
            assert!(outgoing.lend().frame().await.is_none());
            assert!(outgoing.is_whole() && outgoing.is_empty());
        }
        outgoing.wait_for_end().await;
    }
}
