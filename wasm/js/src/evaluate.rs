//! Preconditions of a request.

use http::{HeaderName, Method};
use ifmatch_core::fields::not_modified::is_retained_by_304;
use ifmatch_core::precondition::{Preconditions, Validators, Verdict};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::fields::{
    HeadersLike, RequestLike, Text, check_properties, invalid, last_modified, object, read, tags,
};

#[wasm_bindgen]
extern "C" {
    /// Validators of the current representation.
    #[wasm_bindgen(typescript_type = "Validators | null | undefined")]
    pub type MaybeValidators;
    /// Outcome of the conditions.
    #[wasm_bindgen(typescript_type = "Verdict")]
    pub type JsVerdict;
}

/// Evaluates the conditions of a request against the current representation, `null` if there is none, in the order of
/// RFC 9110 §13.2.2.
///
/// Call this only if the response without conditions would be 2xx or 412: after authentication, and after a 404 or 405.
/// For a write this isn't enough, since another write may happen in between: pass the condition on to your storage (R2's
/// `onlyIf`, a Durable Object, `WHERE version = ?`).
///
/// # Errors
/// A `TypeError` for an `etag` without quotes, an invalid `lastModified`, or an unknown property, and for a request with an invalid
/// method or invalid header fields.
#[wasm_bindgen(js_name = evaluatePreconditions)]
pub fn evaluate_preconditions(
    request: &RequestLike,
    current: &MaybeValidators,
) -> Result<JsVerdict, JsValue> {
    let method = Method::from_bytes(request.method()?.as_bytes())
        .map_err(|_| invalid("the method is no token"))?;
    let conditions =
        Preconditions::from_headers(&read(&request.headers()?, &Preconditions::HEADERS)?);
    let current: &JsValue = current.as_ref();
    let verdict = if current.is_null() || current.is_undefined() {
        conditions.evaluate(&method, None)
    } else {
        check_properties(current)?;
        let tags = tags(current)?;
        conditions.evaluate(
            &method,
            Some(&Validators {
                tags: &tags,
                last_modified: last_modified(current)?,
            }),
        )
    };
    let verdict = match verdict {
        Verdict::Proceed => object(&[("outcome", "proceed".into())]),
        Verdict::NotModified => {
            object(&[("outcome", "not-modified".into()), ("status", 304.into())])
        }
        Verdict::Failed(condition) => object(&[
            ("outcome", "failed".into()),
            ("status", 412.into()),
            ("condition", condition.header().as_str().into()),
        ]),
    };
    Ok(verdict?.unchecked_into())
}

/// Returns `true` if a write has a condition, as a 428 requires (RFC 6585 §3).
///
/// # Errors
/// A `TypeError` if the argument isn't a set of header fields.
#[wasm_bindgen(js_name = hasWriteCondition)]
pub fn has_write_condition(request: &RequestLike) -> Result<bool, JsValue> {
    Ok(
        Preconditions::from_headers(&read(&request.headers()?, &Preconditions::WRITE_HEADERS)?)
            .has_write_condition(),
    )
}

/// Returns `true` if a 304 includes this field of the corresponding 200 (RFC 9110 §15.4.5), whose header fields are `headers`: with an
/// `ETag`, it leaves out `Last-Modified`.
///
/// # Errors
/// A `TypeError` for an invalid name.
#[wasm_bindgen(js_name = isRetainedBy304)]
pub fn is_retained(name: &Text, headers: &HeadersLike) -> Result<bool, JsValue> {
    headers.check()?;
    let tagged = headers.get("etag")?.is_some();
    let name = HeaderName::from_bytes(name.get()?.as_bytes())
        .map_err(|_| invalid("this is no name of a header field"))?;
    Ok(is_retained_by_304(&name, tagged))
}
