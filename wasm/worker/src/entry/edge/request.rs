//! A request, as it came.

use http::{Request, Uri, header};
use worker::{Error, Result, web_sys};

use super::body::EdgeBody;
use super::headers;
use super::stream::ByteStream;
use crate::entry::glue;

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
