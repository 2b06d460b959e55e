//! Bodies: the runtime's streams, as the `http` crates' and back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{LocalBoxStream, try_unfold};
use futures_util::{Stream, StreamExt};
use http_body::{Body, Frame, SizeHint};
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use worker::send::SendWrapper;
use worker::web_sys;

use crate::entry::held::BodyRoom;
use crate::tasks::timeout;

/// A stream of the runtime, with its length if that is known in advance.
pub(crate) struct EdgeBody {
    stream: Option<ByteStream>,
    length: Option<u64>,
    /// Counts the bytes that are read in WebAssembly.
    room: Option<Arc<BodyRoom>>,
}

impl EdgeBody {
    /// Returns an empty body.
    pub(crate) fn empty() -> Self {
        Self {
            stream: None,
            length: Some(0),
            room: None,
        }
    }

    /// Wraps a stream of the given length.
    pub(crate) fn new(stream: ByteStream, length: Option<u64>) -> Self {
        Self {
            stream: Some(stream),
            length,
            room: None,
        }
    }

    /// Limits the bytes in memory.
    pub(crate) fn limited_by(self, room: &Arc<BodyRoom>) -> Self {
        Self {
            room: Some(Arc::clone(room)),
            ..self
        }
    }

    /// Returns the runtime's stream, unless some of it was read.
    pub(crate) fn into_whole(self) -> Option<web_sys::ReadableStream> {
        self.stream?.into_whole()
    }
}

impl Body for EdgeBody {
    type Data = Bytes;
    type Error = BrokenStream;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenStream>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
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
                return Poll::Ready(Some(Err(BrokenStream::new(
                    "the bodies in memory exceed the limit",
                ))));
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

/// The bytes of a stream.
///
/// A failure is an error, not the end: a client that disconnects must not look like the end of its body.
pub(crate) struct ByteStream(SendWrapper<StreamState>);

enum StreamState {
    /// Nothing was read yet.
    Whole(web_sys::ReadableStream),
    /// Being read.
    Read(LocalBoxStream<'static, Result<Bytes, JsValue>>),
}

/// The stream failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream failed: {0}")]
pub(crate) struct BrokenStream(String);

impl BrokenStream {
    /// Creates an error with a reason.
    pub(super) fn new(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<BrokenStream> for StoreError {
    fn from(broken: BrokenStream) -> Self {
        Self::new(StoreErrorKind::Unavailable, broken)
    }
}

impl ByteStream {
    /// Wraps the runtime's stream.
    pub(crate) fn new(whole: web_sys::ReadableStream) -> Self {
        Self(SendWrapper::new(StreamState::Whole(whole)))
    }

    /// Returns the runtime's stream, unless some of it was read.
    pub(crate) fn into_whole(self) -> Option<web_sys::ReadableStream> {
        match self.0.0 {
            StreamState::Whole(whole) => Some(whole),
            StreamState::Read(_) => None,
        }
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes, BrokenStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let state = &mut self.0.0;
        if let StreamState::Whole(whole) = state {
            *state = StreamState::Read(read(StreamReader::new(whole)));
        }
        match state {
            StreamState::Read(chunks) => chunks
                .poll_next_unpin(context)
                .map_err(|error| broken(&error)),
            StreamState::Whole(_) => Poll::Ready(None),
        }
    }
}

fn read(reader: Result<StreamReader, JsValue>) -> LocalBoxStream<'static, Result<Bytes, JsValue>> {
    try_unfold(reader, |reader| async {
        let mut reader = reader?;
        let chunk = reader.next().await?;
        Ok(chunk.map(|chunk| (chunk.to_vec().into(), Ok(reader))))
    })
    .boxed_local()
}

fn broken(error: &JsValue) -> BrokenStream {
    BrokenStream(worker::Error::from(error.clone()).to_string())
}

/// Number of bytes per step, except for the last.
const STEP: u32 = 64 << 10;
/// Time limit of a step, in milliseconds.
const STEP_TIMEOUT: u32 = 300_000;

#[wasm_bindgen]
extern "C" {
    /// A stream of bytes, with the overload of `getReader` that reads into a buffer.
    #[wasm_bindgen(js_name = ReadableStream)]
    type ByteSource;

    #[wasm_bindgen(method, catch, js_name = getReader)]
    fn get_reader(this: &ByteSource, options: &Byob) -> Result<ByobReader, JsValue>;

    /// The options of `getReader`.
    #[wasm_bindgen(js_name = Object)]
    type Byob;

    #[wasm_bindgen(constructor)]
    fn new() -> Byob;

    #[wasm_bindgen(method, setter)]
    fn set_mode(this: &Byob, mode: &str);

    #[wasm_bindgen(js_name = ReadableStreamBYOBReader)]
    type ByobReader;

    /// Cloudflare's extension of the standard: resolves once the buffer has at least this many bytes, or the stream ends.
    #[wasm_bindgen(method, catch, js_name = readAtLeast)]
    async fn read_at_least(
        this: &ByobReader,
        bytes: u32,
        buffer: Uint8Array,
    ) -> Result<Step, JsValue>;

    #[wasm_bindgen(method)]
    fn cancel(this: &ByobReader) -> Promise;

    /// The result of one read.
    #[wasm_bindgen(js_name = Object)]
    type Step;

    #[wasm_bindgen(method, getter)]
    fn done(this: &Step) -> bool;

    #[wasm_bindgen(method, getter)]
    fn value(this: &Step) -> Option<Uint8Array>;
}

/// The reader of a stream. Dropping it before the end cancels the stream.
pub(crate) struct StreamReader {
    reader: ByobReader,
    has_ended: bool,
}

impl StreamReader {
    /// Locks a stream.
    ///
    /// # Errors
    /// The stream is locked already.
    pub(crate) fn new(stream: &web_sys::ReadableStream) -> Result<Self, JsValue> {
        let mode = Byob::new();
        mode.set_mode("byob");
        Ok(Self {
            reader: stream.unchecked_ref::<ByteSource>().get_reader(&mode)?,
            has_ended: false,
        })
    }

    /// Returns the next bytes, or `None` at the end of the stream.
    ///
    /// # Errors
    /// The stream failed, or its next bytes didn't come in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Uint8Array>, JsValue> {
        if self.has_ended {
            return Ok(None);
        }
        let step = timeout(
            STEP_TIMEOUT,
            self.reader
                .read_at_least(STEP, Uint8Array::new_with_length(STEP)),
        )
        .await;
        let step = step.map_err(|late| {
            js_sys::Error::new(&format!("waited for the next bytes of a body: {late}"))
        })?;
        self.has_ended = step.as_ref().map_or(true, Step::done);
        Ok(step?.value().filter(|bytes| bytes.length() > 0))
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        if !self.has_ended {
            let cancelled = JsFuture::from(self.reader.cancel());
            // Without a handler, the runtime would report a rejection.
            spawn_local(async { drop(cancelled.await) });
        }
    }
}
