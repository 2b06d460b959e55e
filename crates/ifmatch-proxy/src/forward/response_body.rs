//! The body of a forwarded response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower_http::timeout::TimeoutBody;

use crate::forward::request_body::BoxError;
use crate::forward::trailers::CleanTrailers;
use crate::upstream::slots::Slot;

pin_project! {
    /// A forwarded response's body. Ends with an error if the upstream pauses for too long or closes early.
    pub struct ProxyBody {
        #[pin]
        body: CleanTrailers<TimeoutBody<Incoming>>,
        slot: Option<Slot>,
    }
}

impl ProxyBody {
    /// Holds the request's slot at its server until the end.
    pub(crate) fn new(body: Incoming, pause: Duration, slot: Slot) -> Self {
        Self { body: CleanTrailers::new(TimeoutBody::new(pause, body)), slot: Some(slot) }
    }
}

impl fmt::Debug for ProxyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyBody")
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        if matches!(&frame, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            *this.slot = None;
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
