//! A stream of the runtime, untouched until it is read.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{LocalBoxStream, try_unfold};
use futures_util::{Stream, StreamExt};
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use wasm_bindgen::JsValue;
use worker::send::SendWrapper;
use worker::web_sys;

use super::reader::Reader;

/// The bytes of a stream.
///
/// A failure is an error, not the end: a client that disconnects must not look like the end of its body.
pub(crate) struct ByteStream(SendWrapper<State>);

enum State {
    /// Nothing was read yet.
    Whole(web_sys::ReadableStream),
    /// Being read.
    Read(LocalBoxStream<'static, Result<Bytes, JsValue>>),
}

/// The stream failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream failed: {0}")]
pub(crate) struct Broken(String);

impl Broken {
    /// Creates an error with a reason.
    pub(super) fn new(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<Broken> for StoreError {
    fn from(broken: Broken) -> Self {
        Self::new(StoreErrorKind::Unavailable, broken)
    }
}

impl ByteStream {
    /// Wraps the runtime's stream.
    pub(crate) fn new(whole: web_sys::ReadableStream) -> Self {
        Self(SendWrapper::new(State::Whole(whole)))
    }

    /// Returns the runtime's stream, unless some of it was read.
    pub(crate) fn into_whole(self) -> Option<web_sys::ReadableStream> {
        match self.0.0 {
            State::Whole(whole) => Some(whole),
            State::Read(_) => None,
        }
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let state = &mut self.0.0;
        if let State::Whole(whole) = state {
            *state = State::Read(read(Reader::new(whole)));
        }
        match state {
            State::Read(chunks) => chunks.poll_next_unpin(context).map_err(|error| broken(&error)),
            State::Whole(_) => Poll::Ready(None),
        }
    }
}

fn read(reader: Result<Reader, JsValue>) -> LocalBoxStream<'static, Result<Bytes, JsValue>> {
    try_unfold(reader, |reader| async {
        let mut reader = reader?;
        let chunk = reader.next().await?;
        Ok(chunk.map(|chunk| (chunk.to_vec().into(), Ok(reader))))
    })
    .boxed_local()
}

fn broken(error: &JsValue) -> Broken {
    Broken(worker::Error::from(error.clone()).to_string())
}
