//! The body of a request on its stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Error, RecvStream};
use http::{HeaderMap, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use crate::interim::InterimSender;

/// The content of one stream. Reading it opens the flow-control window.
///
/// A reset is an error regardless of its code. `NO_ERROR` lets servers end a stream early (RFC 9113 §8.1), and does not
/// mean that the content is complete.
#[derive(Debug)]
pub(crate) struct StreamBody {
    stream: RecvStream,
    /// Number of bytes still expected, if the client has declared a length.
    remaining: Option<u64>,
    /// `true` once everything but the trailers has been read.
    in_trailers: bool,
    /// Sends `100 Continue` at the first read, if the client expects it.
    expects_continue: Option<InterimSender>,
}

impl StreamBody {
    /// Reads the content of `stream` after these headers.
    pub(super) fn new(headers: &HeaderMap, stream: RecvStream, expects_continue: Option<InterimSender>) -> Self {
        // h2 has verified that it is a single number, and enforces it.
        let remaining = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, remaining, in_trailers: false, expects_continue }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Some(interim) = self.expects_continue.take().filter(|_| polled.is_pending()) {
            interim.send(StatusCode::CONTINUE, HeaderMap::new());
        }
        polled.map_ok(|bytes| {
            // Fails if the stream has ended, when it does not matter.
            drop(self.stream.flow_control().release_capacity(bytes.len()));
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(bytes.len() as u64));
            bytes
        })
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.in_trailers {
            if let Some(data) = ready!(self.poll_data(cx)) {
                return Poll::Ready(Some(data.map(Frame::data)));
            }
            self.in_trailers = true;
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
