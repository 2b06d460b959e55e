//! The runtime's body of a request or an object.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use worker::web_sys;

use super::stream::{Broken, ByteStream};
use crate::entry::held::Room;

/// A stream of the runtime, with its length if that is known in advance.
pub(crate) struct EdgeBody {
    stream: Option<ByteStream>,
    length: Option<u64>,
    /// Counts the bytes that are read in WebAssembly.
    room: Option<Arc<Room>>,
}

impl EdgeBody {
    /// Returns an empty body.
    pub(crate) fn empty() -> Self {
        Self { stream: None, length: Some(0), room: None }
    }

    /// Wraps a stream of the given length.
    pub(crate) fn new(stream: ByteStream, length: Option<u64>) -> Self {
        Self { stream: Some(stream), length, room: None }
    }

    /// Limits the bytes in memory.
    pub(crate) fn limited_by(self, room: &Arc<Room>) -> Self {
        Self { room: Some(Arc::clone(room)), ..self }
    }

    /// Returns the runtime's stream, unless some of it was read.
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
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let arrived = frame.data_ref().map_or(0, |data| data.len() as u64);
            if let Some(length) = &mut self.length {
                *length = length.saturating_sub(arrived);
            }
            if self.room.as_ref().is_some_and(|room| !room.grow(arrived)) {
                self.stream = None;
                return Poll::Ready(Some(Err(Broken::new("the bodies in memory exceed the limit"))));
            }
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
