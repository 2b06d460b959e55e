//! Reads a stream of the runtime in steps that are long. Told nothing, the runtime gives four kilobytes at a time.

use js_sys::{Array, Function, Object, Promise, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use worker::web_sys;

/// How many bytes a step has, unless the stream ends before.
const STEP: u32 = 64 << 10;

/// What the runtime says.
pub(crate) type Said<T> = Result<T, JsValue>;

/// The one reader of a stream. Dropping it before the end cancels the stream.
pub(crate) struct Reader {
    reader: JsValue,
    has_ended: bool,
}

impl Reader {
    /// Begins to read.
    ///
    /// # Errors
    /// Somebody reads already.
    pub(crate) fn new(stream: &web_sys::ReadableStream) -> Said<Self> {
        let mode = Object::new();
        Reflect::set(&mode, &"mode".into(), &"byob".into())?;
        Ok(Self { reader: call(stream, "getReader", &[mode.into()])?, has_ended: false })
    }

    /// The next bytes. None: the stream has ended.
    ///
    /// # Errors
    /// The stream broke off.
    pub(crate) async fn next(&mut self) -> Said<Option<Uint8Array>> {
        if self.has_ended {
            return Ok(None);
        }
        let room = Uint8Array::new_with_length(STEP);
        let read = promised(call(&self.reader, "readAtLeast", &[STEP.into(), room.into()])).await;
        self.has_ended = read.is_err();
        let read = read?;
        self.has_ended = Reflect::get(&read, &"done".into())?.is_truthy();
        let bytes = Reflect::get(&read, &"value".into())?.dyn_into::<Uint8Array>().ok();
        Ok(bytes.filter(|bytes| bytes.length() > 0))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.has_ended {
            let cancelled = promised(call(&self.reader, "cancel", &[]));
            // Nobody is interested in how it ends.
            spawn_local(async { drop(cancelled.await) });
        }
    }
}

/// Calls a method of an object of the runtime.
pub(crate) fn call(object: &JsValue, method: &str, arguments: &[JsValue]) -> Said<JsValue> {
    let function: Function = Reflect::get(object, &method.into())?.dyn_into()?;
    function.apply(object, &arguments.iter().collect::<Array>())
}

/// Waits for what a method promised.
pub(crate) async fn promised(called: Said<JsValue>) -> Said<JsValue> {
    JsFuture::from(called?.dyn_into::<Promise>()?).await
}
