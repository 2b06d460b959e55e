//! Variables, and errors of bindings.

use js_sys::Reflect;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::{Env, Error};

#[wasm_bindgen]
extern "C" {
    /// JavaScript's conversion of any value to text.
    #[wasm_bindgen(js_name = String)]
    fn to_text(value: &JsValue) -> String;
}

/// Returns a variable or secret as text. In wrangler.toml it may also be a number or a boolean.
pub(crate) fn variable(env: &Env, name: &str) -> Option<String> {
    let value = Reflect::get(env, &name.into()).ok()?;
    (!value.is_null() && !value.is_undefined()).then(|| to_text(&value))
}

/// Error for a binding that is missing or of another kind.
pub(crate) fn missing(name: &str, what: &str, how: &str, error: &Error) -> Error {
    Error::RustError(format!(
        "the binding {name} is not {what}: wrangler.toml needs {how} ({error})"
    ))
}
