//! A request, as it came.

use http::{Method, Request, Uri, header};
use worker::{Error, Result, web_sys};

use super::body::EdgeBody;
use super::headers;
use super::stream::ByteStream;
use crate::glue;

/// Takes a request apart. Its body stays the runtime's until somebody reads it.
///
/// # Errors
/// It is none that HTTP can have.
pub(crate) fn from_js(request: &web_sys::Request) -> Result<Request<EdgeBody>> {
    let mut parsed = Request::new(EdgeBody::empty());
    let head = glue::head(request);
    let mut lines = head.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    *parsed.method_mut() = line().parse().map_err(|error| Error::from(http::Error::from(error)))?;
    *parsed.uri_mut() = target(line())?;
    *parsed.headers_mut() = headers::read(lines)?;
    // Reads have none that means anything.
    let is_read = matches!(*parsed.method(), Method::GET | Method::HEAD);
    if let Some(whole) = (!is_read).then(|| request.body()).flatten() {
        let length = parsed.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        *parsed.body_mut() = EdgeBody::new(ByteStream::new(whole), length);
    }
    Ok(parsed)
}

/// The path and the query of a URL, as a request to the server itself has them.
fn target(url: &str) -> Result<Uri> {
    let after_scheme = url.find("//").map_or(0, |at| at + 2);
    let path = url[after_scheme..].find('/').map_or(url.len(), |at| after_scheme + at);
    url[path..].parse().map_err(|error| Error::from(http::Error::from(error)))
}
