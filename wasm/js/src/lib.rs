//! Strong entity tags, preconditions and byte ranges of `ifmatch-core` for JavaScript, for any Worker or server with
//! `Request` and `Headers`.
//!
//! | file | exports |
//! |---|---|
//! | `lib.rs` | comparisons of tags, and `Last-Modified` |
//! | `digest.rs` | tags and digests of bytes |
//! | `evaluate.rs` | preconditions, and the fields of a 304 |
//! | `range.rs` | byte ranges and `If-Range` |
//! | `fields.rs` | nothing: converts JavaScript's values for the others |
//! | `types.ts` | the TypeScript types, which the generated declarations include |
//!
//! The package's client is in `../client`, and its other files in `../package`.

pub mod digest;
pub mod evaluate;
mod fields;
pub mod range;

use ifmatch_core::date::Timestamp;
use js_sys::Date;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::fields::{Moment, Text, invalid, tag};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.ts");

/// Returns `true` if two tags are equal and neither is weak (RFC 9110 §8.8.3.2), as `If-Match` and `If-Range` compare.
///
/// # Errors
/// A `TypeError` for a tag without quotes.
#[wasm_bindgen(js_name = strongMatch)]
pub fn strong_match(left: &Text, right: &Text) -> Result<bool, JsValue> {
    Ok(tag(&left.get()?)?.strong_eq(&tag(&right.get()?)?))
}

/// Returns `true` if two tags are equal, weak or not (RFC 9110 §8.8.3.2), as `If-None-Match` compares.
///
/// # Errors
/// A `TypeError` for a tag without quotes.
#[wasm_bindgen(js_name = weakMatch)]
pub fn weak_match(left: &Text, right: &Text) -> Result<bool, JsValue> {
    Ok(tag(&left.get()?)?.weak_eq(&tag(&right.get()?)?))
}

/// Returns the `Last-Modified` of a state created at this time: the following second. Before that second has begun, returns
/// `undefined`: send no date then.
///
/// A date then identifies one state, which makes `If-Unmodified-Since` safe despite its one-second resolution.
///
/// # Errors
/// A `TypeError` for an invalid `Date`, or one before 1970.
#[wasm_bindgen(js_name = lastModified)]
pub fn last_modified(modified: &Moment) -> Result<Option<String>, JsValue> {
    let modified = modified
        .dyn_ref()
        .and_then(|date: &Date| moment(date.get_time()));
    let modified = modified.ok_or_else(|| invalid("this is no Date from 1970 on"))?;
    let date = modified.last_modified();
    Ok(date.has_come(now()).then(|| date.to_string()))
}

/// Returns the time of the runtime's clock.
fn now() -> Timestamp {
    moment(Date::now()).unwrap_or_default()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and below 8.64e15"
)]
fn moment(millis: f64) -> Option<Timestamp> {
    (millis >= 0.0).then(|| Timestamp::from_micros((millis as u64).saturating_mul(1000)))
}
