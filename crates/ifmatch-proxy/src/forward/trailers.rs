//! A body with forbidden fields removed from its trailers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use ifmatch_core::fields::trailers;
use pin_project_lite::pin_project;

pin_project! {
    /// A body with [cleaned](trailers::clean) trailers, for either direction.
    pub(crate) struct CleanTrailers<B> {
        #[pin]
        body: B,
    }
}

impl<B> CleanTrailers<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body }
    }
}

impl<B: Body<Data = Bytes>> Body for CleanTrailers<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut frame = self.project().body.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(fields) = frame.trailers_mut()
        {
            trailers::clean(fields);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
