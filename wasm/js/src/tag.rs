//! Entity tags and their comparison, and the dates that go with them.

use ifmatch_core::date::Timestamp;
use js_sys::Date;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::fields::{Moment, Text, invalid, tag};

/// Whether two tags are equal and neither is weak (RFC 9110 §8.8.3.2), as `If-Match` and `If-Range` compare.
///
/// # Errors
/// A `TypeError` for a tag without quotes.
#[wasm_bindgen(js_name = strongMatch)]
pub fn strong_match(left: &Text, right: &Text) -> Result<bool, JsValue> {
    Ok(tag(&left.get()?)?.strong_eq(&tag(&right.get()?)?))
}

/// Whether two tags are equal, weak or not (RFC 9110 §8.8.3.2), as `If-None-Match` compares.
///
/// # Errors
/// A `TypeError` for a tag without quotes.
#[wasm_bindgen(js_name = weakMatch)]
pub fn weak_match(left: &Text, right: &Text) -> Result<bool, JsValue> {
    Ok(tag(&left.get()?)?.weak_eq(&tag(&right.get()?)?))
}

/// The `Last-Modified` of a state that came to be at this moment: the second that follows. None (`undefined`) until that second
/// has come: send no date then.
///
/// So a date that a client holds names one state, and `If-Unmodified-Since` loses no update though it counts in seconds.
///
/// # Errors
/// A `TypeError` for an invalid `Date`, or one before 1970.
#[wasm_bindgen(js_name = lastModified)]
pub fn last_modified(modified: &Moment) -> Result<Option<String>, JsValue> {
    let modified = modified.dyn_ref().and_then(|date: &Date| moment(date.get_time()));
    let modified = modified.ok_or_else(|| invalid("this is no Date from 1970 on"))?;
    let date = modified.last_modified();
    let now = moment(Date::now()).unwrap_or_default();
    Ok(date.has_come(now).then(|| date.to_string()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 8.64e15")]
fn moment(millis: f64) -> Option<Timestamp> {
    (millis >= 0.0).then(|| Timestamp::from_micros((millis as u64).saturating_mul(1000)))
}
