//! Responses of endpoints.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// Returns a JSON response that must not be stored.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    // Maps have texts as keys, and no number is infinite, so nothing fails.
    text(status, "application/json", serde_json::to_vec(value).unwrap_or_default().into())
}

/// Returns a text response that must not be stored.
pub(super) fn text(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
