//! hyper's request body with a default, which the layer needs for its own requests.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// hyper's body, or an empty one.
#[derive(Default)]
pub(crate) struct Input(Option<Incoming>);

impl From<Incoming> for Input {
    fn from(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Input {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
