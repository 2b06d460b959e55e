//! What is asked of the runtime's objects in one call each: to cross to JavaScript takes longer than most of what is done there.
//!
//! What the runtime answers later is told under the number of the question: see [`crate::tasks::answer`].

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(module = "/src/glue.js")]
extern "C" {
    /// Has a function told all answers.
    pub(crate) fn listen(told: &JsValue);

    /// Asks the Durable Object of a name. Tells the bytes of its answer.
    pub(crate) fn ask(number: u32, patience: u32, objects: &JsValue, name: &str, message: &[u8]);
}

#[cfg(feature = "entry")]
#[wasm_bindgen(module = "/src/glue.js")]
extern "C" {
    /// The method, the URL, and the names and values of the fields: a line each.
    pub(crate) fn head(request: &worker::web_sys::Request) -> String;

    /// A response whose fields are names and values, a line each. What `is_encoded` is sent as it is.
    #[wasm_bindgen(catch)]
    pub(crate) fn response(
        body: &JsValue,
        status: u16,
        fields: &str,
        is_encoded: bool,
    ) -> Result<worker::web_sys::Response, JsValue>;

    /// A variable or a secret as a text, also where it is a number or a boolean. None: it is not set.
    pub(crate) fn variable(env: &JsValue, name: &str) -> Option<String>;

    /// Reads an object of R2, within so many milliseconds. The options are those of R2, as JSON. Tells what is known of it, a
    /// line each, and its bytes; nothing, if there is none.
    pub(crate) fn get(number: u32, patience: u32, bucket: &JsValue, key: &str, options: &str);

    /// Asks the same of an object of R2 without its bytes.
    pub(crate) fn look(number: u32, patience: u32, bucket: &JsValue, key: &str);

    /// Writes an object of R2. Tells its tag and its version, a line each; nothing, if the condition was false.
    pub(crate) fn put(number: u32, patience: u32, bucket: &JsValue, key: &str, bytes: &JsValue, options: &str);

    /// Lists objects of R2, with R2's options as JSON. Returns a page of a listing: see glue.js.
    pub(crate) fn list(number: u32, patience: u32, bucket: &JsValue, options: &str);

    /// Deletes up to a thousand objects of R2, with their names as JSON.
    #[wasm_bindgen(js_name = remove)]
    pub(crate) fn delete(number: u32, patience: u32, bucket: &JsValue, keys: &str);

    /// Begins an upload in parts. Tells its name.
    #[wasm_bindgen(js_name = beginUpload)]
    pub(crate) fn begin_upload(number: u32, patience: u32, bucket: &JsValue, key: &str, options: &str);

    /// Sends a part of an upload. Tells its tag.
    #[wasm_bindgen(js_name = sendPart)]
    pub(crate) fn send_part(
        number: u32,
        patience: u32,
        bucket: &JsValue,
        key: &str,
        upload: &str,
        part: u16,
        body: &JsValue,
    );

    /// Ends an upload: its parts, as JSON, become an object. Tells its tag and its version, a line each.
    #[wasm_bindgen(js_name = endUpload)]
    pub(crate) fn end_upload(number: u32, patience: u32, bucket: &JsValue, key: &str, upload: &str, parts: &str);

    /// Gives an upload up.
    #[wasm_bindgen(js_name = leaveUpload)]
    pub(crate) fn leave_upload(number: u32, patience: u32, bucket: &JsValue, key: &str, upload: &str);
}
