//! The body of an answer: the inner service's, or the gateway's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::ticket::Ticket;

/// Any error, to be passed on.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// The body of an answer, with the ticket of its request.
    pub(crate) struct ResponseBody<B> {
        #[pin]
        content: Content<B>,
        ticket: Ticket,
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
    /// A body of the inner service.
    pub(crate) fn inner(body: B, ticket: Ticket) -> Self {
        Self { content: Content::Inner { body }, ticket }
    }

    /// A body of the gateway itself.
    pub(crate) fn own(bytes: Bytes, ticket: Ticket) -> Self {
        Self { content: Content::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) }, ticket }
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
            this.ticket.sent(frame.data_ref().map_or(0, |data| data.remaining() as u64));
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
