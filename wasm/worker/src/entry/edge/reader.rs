//! Reads a stream in large steps: by default, the runtime returns four kilobytes at a time.

use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use worker::web_sys;

use crate::tasks::timeout;

/// Number of bytes per step, except for the last.
const STEP: u32 = 64 << 10;
/// Time limit of a step, in milliseconds.
const STILL: u32 = 300_000;

#[wasm_bindgen]
extern "C" {
    /// A stream of bytes, with the overload of `getReader` that reads into a buffer.
    #[wasm_bindgen(js_name = ReadableStream)]
    type ByteSource;

    #[wasm_bindgen(method, catch, js_name = getReader)]
    fn get_reader(this: &ByteSource, options: &Byob) -> Result<ByobReader, JsValue>;

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
    async fn read_at_least(this: &ByobReader, bytes: u32, buffer: Uint8Array) -> Result<Step, JsValue>;

    #[wasm_bindgen(method)]
    fn cancel(this: &ByobReader) -> Promise;

    #[wasm_bindgen(js_name = Object)]
    type Step;

    #[wasm_bindgen(method, getter)]
    fn done(this: &Step) -> bool;

    #[wasm_bindgen(method, getter)]
    fn value(this: &Step) -> Option<Uint8Array>;
}

/// The reader of a stream. Dropping it before the end cancels the stream.
pub(crate) struct Reader {
    reader: ByobReader,
    has_ended: bool,
}

impl Reader {
    /// Locks a stream.
    ///
    /// # Errors
    /// The stream is locked already.
    pub(crate) fn new(stream: &web_sys::ReadableStream) -> Result<Self, JsValue> {
        let mode = Byob::new();
        mode.set_mode("byob");
        Ok(Self { reader: stream.unchecked_ref::<ByteSource>().get_reader(&mode)?, has_ended: false })
    }

    /// Returns the next bytes, or `None` at the end of the stream.
    ///
    /// # Errors
    /// The stream failed, or its next bytes did not come in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Uint8Array>, JsValue> {
        if self.has_ended {
            return Ok(None);
        }
        let step = timeout(STILL, self.reader.read_at_least(STEP, Uint8Array::new_with_length(STEP))).await;
        let step = step.map_err(|late| js_sys::Error::new(&format!("waited for the next bytes of a body: {late}")))?;
        self.has_ended = step.as_ref().map_or(true, Step::done);
        Ok(step?.value().filter(|bytes| bytes.length() > 0))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.has_ended {
            let cancelled = JsFuture::from(self.reader.cancel());
            // Without a handler, the runtime would report a rejection.
            spawn_local(async { drop(cancelled.await) });
        }
    }
}
