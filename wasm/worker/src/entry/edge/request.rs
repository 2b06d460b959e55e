//! Requests of the runtime.

use http::{Method, Request, Uri, header};
use ifmatch_blob::dialect::Peer;
use worker::{Error, Headers, Result, web_sys};

use super::body::EdgeBody;
use super::headers;
use super::stream::ByteStream;

/// Converts a request. Its body stays the runtime's stream until it is read.
///
/// # Errors
/// The request is not valid in HTTP.
pub(crate) fn from_js(request: &web_sys::Request) -> Result<Request<EdgeBody>> {
    let mut parsed = Request::new(EdgeBody::empty());
    *parsed.method_mut() = request.method().parse().map_err(|error| Error::from(http::Error::from(error)))?;
    let url = request.url();
    *parsed.uri_mut() = target(&url)?;
    *parsed.headers_mut() = headers::from_js(&Headers(request.headers()))?;
    // The edge sets the field, whatever the client sent.
    let address = parsed.headers().get("cf-connecting-ip").and_then(|address| address.to_str().ok()?.parse().ok());
    if let Some(address) = address {
        parsed.extensions_mut().insert(Peer { address, is_secure: url.starts_with("https://") });
    }
    // A body has no meaning in these.
    let is_read = matches!(*parsed.method(), Method::GET | Method::HEAD);
    if let Some(whole) = (!is_read).then(|| request.body()).flatten() {
        let length = parsed.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        *parsed.body_mut() = EdgeBody::new(ByteStream::new(whole), length);
    }
    Ok(parsed)
}

/// Returns the path and query of a URL, in origin form.
fn target(url: &str) -> Result<Uri> {
    let after_scheme = url.find("//").map_or(0, |at| at + 2);
    let path = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
    url[path..].parse().map_err(|error| Error::from(http::Error::from(error)))
}
