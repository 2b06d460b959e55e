//! Byte ranges, and `If-Range`.

use http::header::{IF_RANGE, RANGE};
use ifmatch_core::range::{Limits, Representation, Selection, select, unsatisfied_content_range};
use js_sys::{Array, Reflect};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::fields::{
    RequestLike, check_properties, invalid, last_modified, object, read, tags, text,
};
use crate::now;

#[wasm_bindgen]
extern "C" {
    /// The representation to send.
    #[wasm_bindgen(typescript_type = "Representation")]
    pub type JsRepresentation;
    /// The part to send.
    #[wasm_bindgen(typescript_type = "Selection")]
    pub type JsSelection;
}

/// Selects the part of a representation for the response to a GET: `Range`, unless `If-Range` is false.
///
/// Evaluate the preconditions first: a 304 or 412 takes precedence over a 206 or 416. Only GET has ranges.
///
/// # Errors
/// A `TypeError` for an `etag` without quotes, an invalid `lastModified`, a `length` that isn't a whole number, or an unknown
/// property.
#[wasm_bindgen(js_name = selectRange)]
pub fn select_range(
    request: &RequestLike,
    sent: &JsRepresentation,
) -> Result<JsSelection, JsValue> {
    let sent: &JsValue = sent.as_ref();
    check_properties(sent)?;
    if request.method()? != "GET" {
        return Ok(object(&[("outcome", "whole".into())])?.unchecked_into());
    }
    let tags = tags(sent)?;
    let len = length(sent)?;
    let representation = Representation {
        tag: tags.first(),
        last_modified: last_modified(sent)?,
        len,
    };
    let headers = read(&request.headers()?, &[RANGE, IF_RANGE])?;
    let selection = match select(&headers, &representation, now(), Limits::default()) {
        Selection::Whole => object(&[("outcome", "whole".into())]),
        Selection::Unsatisfiable => object(&[
            ("outcome", "unsatisfiable".into()),
            ("status", 416.into()),
            (
                "contentRange",
                text(unsatisfied_content_range(len).as_bytes()).into(),
            ),
        ]),
        Selection::Parts(parts) => {
            let ranges = Array::new();
            for part in parts {
                ranges.push(&object(&[
                    ("start", number(part.start())),
                    ("end", number(part.end())),
                    (
                        "contentRange",
                        text(part.content_range(len).as_bytes()).into(),
                    ),
                ])?);
            }
            object(&[
                ("outcome", "parts".into()),
                ("status", 206.into()),
                ("ranges", ranges.into()),
            ])
        }
    };
    Ok(selection?.unchecked_into())
}

/// 2^53: from here on, JavaScript's numbers leave out whole numbers.
const INEXACT: f64 = 9_007_199_254_740_992.0;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number below 2^53"
)]
fn length(sent: &JsValue) -> Result<u64, JsValue> {
    let length = Reflect::get(sent, &"length".into())?.as_f64();
    let whole =
        length.filter(|length| *length >= 0.0 && *length < INEXACT && length.fract() == 0.0);
    whole
        .map(|length| length as u64)
        .ok_or_else(|| invalid("length is a whole number of bytes"))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no position is larger than the length, which is below 2^53"
)]
fn number(position: u64) -> JsValue {
    (position as f64).into()
}
