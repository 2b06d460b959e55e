//! Responses for the runtime.

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};
use ifmatch_blob::body::BlobBody;
use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use worker::{EncodeBody, Error, FixedLengthStream, ResponseBody, ResponseBuilder, Result, web_sys};

use super::body::EdgeBody;
use super::headers;

/// Converts a response to a request with this method.
///
/// # Errors
/// The runtime rejects a header field.
pub(crate) fn to_js(method: &Method, response: Response<BlobBody>) -> Result<worker::Response> {
    let (mut head, body) = response.into_parts();
    // A body in parts has no size hint.
    let promised = head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = body.size_hint().exact().or(promised);
    if let Some(length) = length.filter(|length| method == Method::HEAD && promised.is_none() && *length > 0) {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let send = |body: ResponseBody| sent(head.status, &head.headers, body);
    if method == Method::HEAD || has_no_body(head.status) || body.is_end_stream() {
        return send(ResponseBody::Empty);
    }
    let mut body = match body.downcast::<EdgeBody>() {
        // The runtime knows the length of its own streams and sends it.
        Ok(own) => return send(own.into_whole().map_or(ResponseBody::Empty, ResponseBody::Stream)),
        Err(body) => body,
    };
    let first = at_once(&mut body);
    if let Some(first) = first.as_ref().filter(|_| body.is_end_stream()) {
        return send(ResponseBody::Body(first.to_vec()));
    }
    let chunks = futures_util::stream::iter(first.map(Ok)).chain(chunks(body));
    let stream = match length {
        Some(length) => sized(chunks, length),
        None => wasm_streams::ReadableStream::from_stream(chunks.map(to_array)).into_raw().unchecked_into(),
    };
    send(ResponseBody::Stream(stream))
}

fn sent(status: StatusCode, headers: &HeaderMap, body: ResponseBody) -> Result<worker::Response> {
    let response = ResponseBuilder::new().with_status(status.as_u16()).with_headers(headers::to_js(headers)?);
    // By default, the runtime would encode an encoded body again.
    let is_encoded = headers.contains_key(header::CONTENT_ENCODING);
    let response = if is_encoded { response.with_encode_body(EncodeBody::Manual) } else { response };
    Ok(response.body(body))
}

/// The runtime rejects these with a body (RFC 9110 §15).
fn has_no_body(status: StatusCode) -> bool {
    let bare =
        [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    bare.contains(&status)
}

/// Returns the first bytes if they are available.
fn at_once(body: &mut BlobBody) -> Option<Bytes> {
    body.frame().now_or_never()??.ok()?.into_data().ok()
}

fn chunks(body: BlobBody) -> impl Stream<Item = Result<Bytes>> + 'static {
    BodyDataStream::new(body).map(|chunk| chunk.map_err(|error| Error::RustError(error.to_string())))
}

/// Wraps chunks in a stream with a `Content-Length`.
fn sized(chunks: impl Stream<Item = Result<Bytes>> + 'static, length: u64) -> web_sys::ReadableStream {
    let chunks = chunks.map(|chunk| chunk.map(Vec::from));
    worker::worker_sys::FixedLengthStream::from(FixedLengthStream::wrap(chunks, length)).readable()
}

fn to_array(chunk: Result<Bytes>) -> std::result::Result<JsValue, JsValue> {
    chunk.map(|chunk| Uint8Array::from(&chunk[..]).into()).map_err(JsValue::from)
}
