//! A body, as the runtime has it: of a request, or of an object.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use worker::web_sys;

use super::stream::{Broken, ByteStream};

/// A stream of the runtime, with its length where that is known beforehand.
pub(crate) struct EdgeBody {
    stream: Option<ByteStream>,
    length: Option<u64>,
}

impl EdgeBody {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        Self { stream: None, length: Some(0) }
    }

    /// The bytes of a stream, which promises to be so long.
    pub(crate) fn new(stream: ByteStream, length: Option<u64>) -> Self {
        Self { stream: Some(stream), length }
    }

    /// The runtime's stream, if nothing was read of it.
    pub(crate) fn into_whole(self) -> Option<web_sys::ReadableStream> {
        self.stream?.into_whole()
    }
}

impl Body for EdgeBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let polled = Pin::new(stream).poll_next(context).map_ok(Frame::data);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.stream = None;
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(length) = &mut self.length
        {
            *length = length.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) => SizeHint::with_exact(length),
            None => SizeHint::default(),
        }
    }
}
