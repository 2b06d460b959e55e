//! A request body that tells when all of it has been sent.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::Semaphore;

/// Any error of a body.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// A request body that tells when all of it has been sent, or has failed.
    pub(crate) struct SentBody<B> {
        #[pin]
        body: B,
        end: End,
    }
}

/// The end of a request body.
#[derive(Clone, Debug)]
pub(crate) struct End(Arc<Semaphore>);

/// The client stopped sending the body.
#[derive(Debug, thiserror::Error)]
#[error("the client stopped sending the body: {0}")]
pub(crate) struct Interrupted(BoxError);

impl<B: Body> SentBody<B> {
    /// Watches a body.
    pub(crate) fn new(body: B) -> (Self, End) {
        let end = End(Arc::new(Semaphore::new(0)));
        if body.is_end_stream() {
            end.reached();
        }
        (Self { body, end: end.clone() }, end)
    }
}

impl End {
    /// Waits for it.
    pub(crate) async fn wait(&self) {
        // A closed semaphore gives no permit: that is what is waited for.
        drop(self.0.acquire().await);
    }

    fn reached(&self) {
        self.0.close();
    }
}

impl<B> Body for SentBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        if matches!(&frame, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            this.end.reached();
        }
        frame.map_err(|error| Interrupted(error.into()))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
