//! The body of a response, from the inner service or from the gateway itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use ifmatch_http_server::BoxError;
use pin_project_lite::pin_project;

use super::tracker::RequestTracker;

pin_project! {
    /// The body of a response, with the tracker of its request.
    pub(crate) struct ResponseBody<B> {
        #[pin]
        content: Content<B>,
        tracker: RequestTracker,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Inner { #[pin] body: B },
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    /// Wraps a body of the inner service.
    pub(crate) fn inner(body: B, tracker: RequestTracker) -> Self {
        Self { content: Content::Inner { body }, tracker }
    }

    /// Creates a body of the gateway itself.
    pub(crate) fn own(bytes: Bytes, tracker: RequestTracker) -> Self {
        Self { content: Content::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) }, tracker }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = match this.content.project() {
            ContentProjection::Inner { body } => body.poll_frame(cx).map_err(Into::into),
            ContentProjection::Own { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        };
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.tracker.sent(frame.data_ref().map_or(0, |data| data.remaining() as u64));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
