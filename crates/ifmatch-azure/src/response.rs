//! What every answer has: the ids and the version of its request.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;

use super::error::AzureError;
use super::fields::{self, CLIENT_REQUEST_ID, VERSION};
use super::xml;
use ifmatch_blob::body::BlobBody;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const REQUEST_ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-request-server-encrypted");
/// As many fields as nearly all answers without a body have.
const USUAL_FIELDS: usize = 12;
/// The longest id of the client's, in bytes.
const MAX_ID: usize = 1024;

/// Refuses a request whose version is no date, or whose id is too long.
pub(super) fn check(head: &Parts) -> Result<(), AzureError> {
    let version = fields::one(&head.headers, &VERSION)?;
    if !version.is_some_and(is_version) {
        return Err(AzureError::invalid_field(VERSION.as_str(), "a version is a date such as 2026-02-06"));
    }
    match fields::one(&head.headers, &CLIENT_REQUEST_ID)? {
        Some(id) if id.len() > MAX_ID => {
            Err(AzureError::invalid_field(CLIENT_REQUEST_ID.as_str(), "it has at most 1,024 characters"))
        }
        _ => Ok(()),
    }
}

/// A version is a date: no newest one is known, so that new SDKs work.
fn is_version(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit();
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { digit(byte) })
}

/// What ties an answer to its request.
pub(super) struct Identity {
    version: Option<HeaderValue>,
    client_request_id: Option<HeaderValue>,
}

impl Identity {
    /// What the request says of itself.
    pub(super) fn of(head: &Parts) -> Self {
        let field = |name| head.headers.get(name).filter(|value| value.len() <= MAX_ID).cloned();
        Self { version: field(VERSION), client_request_id: field(CLIENT_REQUEST_ID) }
    }

    /// Adds it to the answer, with an id of the server's own.
    pub(super) fn mark(self, mut response: Response<BlobBody>) -> Response<BlobBody> {
        let id = fields::guid().and_then(|id| HeaderValue::try_from(id.to_string()).ok());
        let own = [(VERSION, self.version), (CLIENT_REQUEST_ID, self.client_request_id), (REQUEST_ID, id)];
        response.headers_mut().extend(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        response
    }
}

/// An answer without a body that tells the version of what was used.
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

/// Marks a write as not encrypted by the service.
pub(super) fn tell_encryption(response: &mut Response<BlobBody>) {
    response.headers_mut().insert(REQUEST_ENCRYPTED, HeaderValue::from_static("false"));
}

/// An answer with a document.
pub(super) fn document(text: String) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(xml::MEDIA_TYPE));
    headers.insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = text.into();
    response
}
