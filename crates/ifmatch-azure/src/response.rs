//! Parts that responses share: version, request ids, dates and tags.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::lease::azure::CLIENT_REQUEST_ID;

use super::error::AzureError;
use super::fields::{self, VERSION};
use super::xml;
use ifmatch_blob::body::BlobBody;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const REQUEST_ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-request-server-encrypted");
/// Enough for the headers of nearly all responses without a body.
const USUAL_FIELDS: usize = 12;
/// Maximum length of a client request id, in bytes.
const MAX_ID: usize = 1024;

/// Rejects a request with a malformed version, or with a client request id that is too long.
pub(super) fn check(head: &Parts) -> Result<(), AzureError> {
    let version = fields::one(&head.headers, &VERSION)?;
    if !version.is_some_and(is_version) {
        return Err(AzureError::invalid_field(VERSION.as_str(), "must be a date such as 2026-02-06"));
    }
    match fields::one(&head.headers, &CLIENT_REQUEST_ID)? {
        Some(id) if id.len() > MAX_ID => {
            Err(AzureError::invalid_field(CLIENT_REQUEST_ID.as_str(), "must have at most 1,024 characters"))
        }
        _ => Ok(()),
    }
}

/// Accepts any date, so that newer SDKs work.
fn is_version(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit();
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { digit(byte) })
}

/// The headers of a request that its response repeats.
pub(super) struct Identity {
    version: Option<HeaderValue>,
    client_request_id: Option<HeaderValue>,
}

impl Identity {
    /// Takes the headers from a request.
    pub(super) fn of(head: &Parts) -> Self {
        let field = |name| head.headers.get(name).filter(|value| value.len() <= MAX_ID).cloned();
        Self { version: field(VERSION), client_request_id: field(CLIENT_REQUEST_ID) }
    }

    /// Adds the headers, and a request id of the server's own, to a response.
    pub(super) fn mark(self, mut response: Response<BlobBody>) -> Response<BlobBody> {
        let id = fields::guid().and_then(|id| HeaderValue::try_from(id.to_string()).ok());
        let own = [(VERSION, self.version), (CLIENT_REQUEST_ID, self.client_request_id), (REQUEST_ID, id)];
        response.headers_mut().extend(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        response
    }
}

/// An empty response with the tag and date of the resource.
pub(super) fn empty(status: StatusCode, tag: Option<&EntityTag>, date: Option<HttpDate>) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_FIELDS);
    let headers = response.headers_mut();
    headers.extend(tag.map(|tag| (ETAG, tag.to_header())));
    headers.extend(date.map(|date| (LAST_MODIFIED, date.to_header())));
    headers.insert(CONTENT_LENGTH, 0.into());
    response
}

/// States that the service does not encrypt what it stores.
pub(super) fn tell_encryption(response: &mut Response<BlobBody>) {
    response.headers_mut().insert(REQUEST_ENCRYPTED, HeaderValue::from_static("false"));
}

/// A response with an XML document.
pub(super) fn document(text: String) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(xml::MEDIA_TYPE));
    headers.insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = text.into();
    response
}
