//! What is asked of the runtime's objects in one call each: to cross to JavaScript takes longer than most of what is done there.

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::web_sys;

#[wasm_bindgen(module = "/src/entry/glue.js")]
extern "C" {
    /// The method, the URL, and the names and values of the fields: a line each.
    pub(super) fn head(request: &web_sys::Request) -> String;

    /// A response whose fields are names and values, a line each. What `is_encoded` is sent as it is.
    #[wasm_bindgen(catch)]
    pub(super) fn response(
        body: &JsValue,
        status: u16,
        fields: &str,
        is_encoded: bool,
    ) -> Result<web_sys::Response, JsValue>;

    /// Reads an object of R2. The options are those of R2, as JSON.
    #[wasm_bindgen(catch)]
    pub(super) fn get(bucket: &JsValue, key: &str, options: &str) -> Result<Promise, JsValue>;

    /// Asks what is known of an object of R2.
    #[wasm_bindgen(catch)]
    pub(super) fn look(bucket: &JsValue, key: &str) -> Result<Promise, JsValue>;

    /// What is known of an object of R2, as JSON.
    #[wasm_bindgen(catch)]
    pub(super) fn describe(object: &JsValue) -> Result<String, JsValue>;

    /// The bytes of an object of R2, if it was sent with them.
    pub(super) fn body(object: &JsValue) -> Option<web_sys::ReadableStream>;
}
