//! The body of a request as it comes on its stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Error, RecvStream};
use http::{HeaderMap, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use crate::interim::Turn;

/// What the client sends on one stream. Reading it lets the client send more.
///
/// A client that resets the stream has not sent it all, whatever its reason: `NO_ERROR` is how servers end a stream early
/// (RFC 9113 §8.1), and says nothing about content.
#[derive(Debug)]
pub(crate) struct StreamBody {
    stream: RecvStream,
    /// Bytes that are still to come, if the client has said so.
    rest: Option<u64>,
    /// All but the trailers was read.
    in_trailers: bool,
    /// The client waits for leave to send it.
    waiting: Option<Turn>,
}

impl StreamBody {
    /// What comes on `stream` after these fields; a client that is `waiting` gets leave once somebody reads.
    pub(super) fn new(headers: &HeaderMap, stream: RecvStream, waiting: Option<Turn>) -> Self {
        // The library has checked that it is a number, and the same in all lines, and holds the client to it.
        let rest = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, rest, in_trailers: false, waiting }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Some(turn) = self.waiting.take().filter(|_| polled.is_pending()) {
            turn.say(StatusCode::CONTINUE, HeaderMap::new());
        }
        polled.map_ok(|bytes| {
            // Fails if the stream has ended: then nobody waits for it.
            drop(self.stream.flow_control().release_capacity(bytes.len()));
            self.rest = self.rest.map(|rest| rest.saturating_sub(bytes.len() as u64));
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
        self.rest.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
