//! Reading a body up to a limit.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;

use super::response::as_bytes;

/// A partly read body.
pub(crate) struct PartlyReadBody<B> {
    pub(crate) body: Pin<Box<B>>,
    pub(crate) chunks: VecDeque<Bytes>,
    /// Number of bytes that may still be read.
    remaining: u64,
}

/// The reason why reading ended.
pub(crate) enum ReadEnd<E> {
    /// The body is complete, with these trailers.
    Complete(Option<Box<HeaderMap>>),
    /// The body is longer than the limit.
    Limit,
    /// The body has failed.
    Error(E),
}

impl<B: Body> PartlyReadBody<B> {
    pub(crate) fn new(body: B, limit: u64) -> Self {
        Self {
            body: Box::pin(body),
            chunks: VecDeque::new(),
            remaining: limit,
        }
    }

    /// Reads to the end or the limit. Stores each frame immediately, so cancelling this future loses nothing.
    pub(crate) async fn read(&mut self) -> ReadEnd<B::Error> {
        loop {
            if let Some(end) = self.read_frame().await {
                return end;
            }
        }
    }

    /// Reads one frame. Returns `None` if there may be more.
    pub(crate) async fn read_frame(&mut self) -> Option<ReadEnd<B::Error>> {
        let frame = match as_bytes(self.body.frame().await) {
            None => return Some(ReadEnd::Complete(None)),
            Some(Err(error)) => return Some(ReadEnd::Error(error)),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Err(trailers) => Some(ReadEnd::Complete(trailers.ok().map(Box::new))),
            Ok(data) => {
                let len = data.len() as u64;
                self.chunks.push_back(data);
                match self.remaining.checked_sub(len) {
                    Some(remaining) => {
                        self.remaining = remaining;
                        None
                    }
                    None => Some(ReadEnd::Limit),
                }
            }
        }
    }
}
