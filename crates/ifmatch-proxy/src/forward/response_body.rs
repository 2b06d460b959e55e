//! The body of a forwarded response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use ifmatch_core::fields::trailers;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use crate::forward::request_body::BoxError;
use crate::upstream::slots::RequestSlot;

/// The upstream paused for too long within a body.
#[derive(Debug, thiserror::Error)]
#[error("the upstream paused for too long")]
struct PauseTooLong;

pin_project! {
    /// A body that fails if its upstream pauses for too long. Unlike tower-http's, it tells the end and the length of its
    /// content: a response that ends with its head must be forwarded as such, above all an error of gRPC (Trailers-Only).
    struct PausedBody<B> {
        #[pin]
        body: B,
        pause: Duration,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for PausedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if let Poll::Ready(frame) = this.body.poll_frame(cx) {
            *this.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(sleep(*this.pause)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(PauseTooLong.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// A forwarded response's body. Ends with an error if the upstream pauses for too long or closes early.
    pub struct ProxyBody {
        #[pin]
        body: Option<CleanTrailers<PausedBody<Incoming>>>,
        slot: Option<RequestSlot>,
    }
}

impl ProxyBody {
    /// Creates an empty body, of a response without an upstream.
    pub(crate) fn empty() -> Self {
        Self {
            body: None,
            slot: None,
        }
    }

    /// Holds the request's slot at its server until the end.
    pub(crate) fn new(body: Incoming, pause: Duration, slot: RequestSlot) -> Self {
        Self {
            body: Some(CleanTrailers::new(PausedBody {
                body,
                pause,
                timer: None,
            })),
            slot: Some(slot),
        }
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

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = body.as_mut().poll_frame(cx);
        if matches!(&frame, Poll::Ready(None | Some(Err(_)))) || body.is_end_stream() {
            *this.slot = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

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

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
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
