//! A request, as it came.

use http::{Request, Uri, header};
use worker::{Error, Result, web_sys};

use super::body::EdgeBody;
use super::headers;
use super::stream::ByteStream;

/// Takes a request apart. Its body stays the runtime's until somebody reads it.
///
/// # Errors
/// It is none that HTTP can have.
pub(crate) fn from_js(request: &web_sys::Request) -> Result<Request<EdgeBody>> {
    let mut parsed = Request::new(EdgeBody::empty());
    *parsed.method_mut() = request.method().parse().map_err(|error| Error::from(http::Error::from(error)))?;
    *parsed.uri_mut() = target(&request.url())?;
    *parsed.headers_mut() = headers::from_js(&request.headers())?;
    if let Some(whole) = request.body() {
        let length = parsed.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        *parsed.body_mut() = EdgeBody::new(ByteStream::new(whole), length);
    }
    Ok(parsed)
}

/// The path and the query of a URL, as a request to the server itself has them.
fn target(url: &str) -> Result<Uri> {
    let uri: Uri = url.parse().map_err(|error| Error::from(http::Error::from(error)))?;
    let target = uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    Ok(target)
}
