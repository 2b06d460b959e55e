//! Converts the runtime's requests, responses and streams to the `http` crates' and back.

pub(crate) mod body;

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Peer;
use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use worker::{
    EncodeBody, Error, FixedLengthStream, Headers, ResponseBody, ResponseBuilder, Result, web_sys,
};

use body::{ByteStream, EdgeBody};

/// Converts a request. Its body stays the runtime's stream until it is read.
///
/// # Errors
/// The request isn't valid in HTTP.
pub(crate) fn from_js(request: &web_sys::Request) -> Result<Request<EdgeBody>> {
    let mut parsed = Request::new(EdgeBody::empty());
    *parsed.method_mut() = request
        .method()
        .parse()
        .map_err(|error| Error::from(http::Error::from(error)))?;
    let url = request.url();
    *parsed.uri_mut() = target(&url)?;
    *parsed.headers_mut() = from_js_headers(&Headers(request.headers()))?;
    // The edge sets the field, whatever the client sent.
    let address = parsed
        .headers()
        .get("cf-connecting-ip")
        .and_then(|address| address.to_str().ok()?.parse().ok());
    if let Some(address) = address {
        parsed.extensions_mut().insert(Peer {
            address,
            is_secure: url.starts_with("https://"),
        });
    }
    // A body has no meaning in these (RFC 9110 §9.3.1 and §9.3.2).
    let is_read = matches!(*parsed.method(), Method::GET | Method::HEAD);
    if let Some(whole) = (!is_read).then(|| request.body()).flatten() {
        let length = parsed
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        *parsed.body_mut() = EdgeBody::new(ByteStream::new(whole), length);
    }
    Ok(parsed)
}

/// Returns the path and query of a URL, in origin form.
fn target(url: &str) -> Result<Uri> {
    let after_scheme = url.find("//").map_or(0, |at| at + 2);
    let path = url[after_scheme..]
        .find('/')
        .map_or(url.len(), |at| after_scheme + at);
    url[path..]
        .parse()
        .map_err(|error| Error::from(http::Error::from(error)))
}

/// Converts a response to a request with this method.
///
/// # Errors
/// The runtime rejects a header field.
pub(crate) fn to_js(method: &Method, response: Response<BlobBody>) -> Result<worker::Response> {
    let (mut head, body) = response.into_parts();
    // A body in parts has no size hint.
    let promised = head
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    let length = body.size_hint().exact().or(promised);
    if let Some(length) =
        length.filter(|length| method == Method::HEAD && promised.is_none() && *length > 0)
    {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let send = |body: ResponseBody| sent(head.status, &head.headers, body);
    if method == Method::HEAD || has_no_body(head.status) || body.is_end_stream() {
        return send(ResponseBody::Empty);
    }
    let mut body = match body.downcast::<EdgeBody>() {
        // The runtime knows the length of its own streams and sends it.
        Ok(own) => {
            return send(
                own.into_whole()
                    .map_or(ResponseBody::Empty, ResponseBody::Stream),
            );
        }
        Err(body) => body,
    };
    let first = at_once(&mut body);
    if let Some(Ok(whole)) = &first
        && body.is_end_stream()
    {
        return send(ResponseBody::Body(whole.to_vec()));
    }
    let chunks = futures_util::stream::iter(first).chain(chunks(body));
    let stream = match length {
        Some(length) => sized(chunks, length),
        None => wasm_streams::ReadableStream::from_stream(chunks.map(to_array))
            .into_raw()
            .unchecked_into(),
    };
    send(ResponseBody::Stream(stream))
}

/// Builds the runtime's response.
fn sent(status: StatusCode, headers: &HeaderMap, body: ResponseBody) -> Result<worker::Response> {
    let response = ResponseBuilder::new()
        .with_status(status.as_u16())
        .with_headers(to_js_headers(headers)?);
    // By default, the runtime would encode an encoded body again.
    let is_encoded = headers.contains_key(header::CONTENT_ENCODING);
    let response = if is_encoded {
        response.with_encode_body(EncodeBody::Manual)
    } else {
        response
    };
    Ok(response.body(body))
}

/// The runtime rejects these with a body (RFC 9110 §15).
fn has_no_body(status: StatusCode) -> bool {
    let bare = [
        StatusCode::SWITCHING_PROTOCOLS,
        StatusCode::NO_CONTENT,
        StatusCode::RESET_CONTENT,
        StatusCode::NOT_MODIFIED,
    ];
    bare.contains(&status)
}

/// Returns the first bytes, or the error in their place, if that is available.
fn at_once(body: &mut BlobBody) -> Option<Result<Bytes>> {
    match body.frame().now_or_never()?? {
        Ok(frame) => frame.into_data().ok().map(Ok),
        Err(error) => Some(Err(Error::RustError(error.to_string()))),
    }
}

fn chunks(body: BlobBody) -> impl Stream<Item = Result<Bytes>> + 'static {
    BodyDataStream::new(body)
        .map(|chunk| chunk.map_err(|error| Error::RustError(error.to_string())))
}

/// Wraps chunks in a stream with a `Content-Length`.
fn sized(
    chunks: impl Stream<Item = Result<Bytes>> + 'static,
    length: u64,
) -> web_sys::ReadableStream {
    let chunks = chunks.map(|chunk| chunk.map(Vec::from));
    worker::worker_sys::FixedLengthStream::from(FixedLengthStream::wrap(chunks, length)).readable()
}

fn to_array(chunk: Result<Bytes>) -> std::result::Result<JsValue, JsValue> {
    chunk
        .map(|chunk| Uint8Array::from(&chunk[..]).into())
        .map_err(JsValue::from)
}

/// Reads the runtime's header fields, which joins repeated ones with a comma.
///
/// # Errors
/// A name or value isn't valid in HTTP, or there are too many.
pub(crate) fn from_js_headers(fields: &Headers) -> Result<HeaderMap> {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(invalid)?;
        map.try_append(
            name,
            HeaderValue::from_bytes(&bytes(&value)).map_err(invalid)?,
        )
        .map_err(invalid)?;
    }
    Ok(map)
}

/// Writes header fields for the runtime.
///
/// # Errors
/// The runtime rejects a field.
pub(crate) fn to_js_headers(map: &HeaderMap) -> Result<Headers> {
    let fields = Headers::new();
    for (name, value) in map {
        fields.append(name.as_str(), &text(value))?;
    }
    Ok(fields)
}

/// Returns one byte per character. Text with a character above 255 is kept as UTF-8.
fn bytes(text: &str) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return text.as_bytes().into();
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(char).ok()).collect();
    bytes.map_or(text.as_bytes().into(), Into::into)
}

/// Returns one character per byte.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    value.to_str().map_or_else(
        |_| value.as_bytes().iter().copied().map(char::from).collect(),
        Cow::Borrowed,
    )
}

fn invalid(error: impl Into<http::Error>) -> Error {
    Error::from(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_one_character() {
        let all: Vec<u8> = (0..=255).collect();
        let latin: String = all.iter().copied().map(char::from).collect();
        assert_eq!(bytes(&latin), all.as_slice());
        for text in ["a\u{20ac}", "a"] {
            assert_eq!(bytes(text), text.as_bytes());
        }
        assert_eq!(
            text(&HeaderValue::from_bytes(b"\"a\", \"\xe4\"").unwrap()),
            "\"a\", \"\u{e4}\""
        );
        assert_eq!(text(&HeaderValue::from_static("")), "");
    }
}
