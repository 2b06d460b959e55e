//! A stream of the runtime, which stays the runtime's own until somebody reads it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use wasm_streams::readable::IntoStream;
use worker::send::SendWrapper;
use worker::web_sys;

/// The bytes of a stream.
///
/// An error ends it as an error: that a client left must not look like the end of its body.
pub(crate) struct ByteStream(SendWrapper<State>);

enum State {
    /// Nothing was read.
    Whole(web_sys::ReadableStream),
    /// Being read.
    Read(IntoStream<'static>),
    /// Nothing can be read.
    Over,
}

/// The stream broke off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream broke off: {0}")]
pub(crate) struct Broken(String);

/// A store's stream that broke off.
impl From<Broken> for StoreError {
    fn from(broken: Broken) -> Self {
        Self::new(StoreErrorKind::Unavailable, broken)
    }
}

impl ByteStream {
    /// The bytes of the runtime's stream.
    pub(crate) fn new(whole: web_sys::ReadableStream) -> Self {
        Self(SendWrapper::new(State::Whole(whole)))
    }

    /// The runtime's stream, if nothing was read of it.
    pub(crate) fn into_whole(self) -> Option<web_sys::ReadableStream> {
        match self.0.0 {
            State::Whole(whole) => Some(whole),
            State::Read(_) | State::Over => None,
        }
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let state = &mut self.0.0;
        if let State::Whole(whole) = state {
            *state = match wasm_streams::ReadableStream::from_raw(whole.clone().unchecked_into()).try_into_stream() {
                Ok(read) => State::Read(read),
                Err((error, _)) => {
                    let broken = broken(&error.into());
                    *state = State::Over;
                    return Poll::Ready(Some(Err(broken)));
                }
            };
        }
        let State::Read(read) = state else { return Poll::Ready(None) };
        let chunk = ready!(Pin::new(read).poll_next(context));
        if !matches!(chunk, Some(Ok(_))) {
            *state = State::Over;
        }
        Poll::Ready(chunk.map(|chunk| match chunk {
            Ok(chunk) => chunk.dyn_into::<Uint8Array>().map(|chunk| chunk.to_vec().into()).map_err(|odd| broken(&odd)),
            Err(error) => Err(broken(&error)),
        }))
    }
}

fn broken(error: &JsValue) -> Broken {
    Broken(worker::Error::from(error.clone()).to_string())
}
