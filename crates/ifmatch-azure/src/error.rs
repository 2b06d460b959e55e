//! Error responses: a code in a header, and XML.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use ifmatch_core::lease::azure::{self, HeaderError};
use ifmatch_core::range;

use super::shared_key::AuthError;
use super::xml::Xml;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::InvalidName;
use ifmatch_blob::store::{StoreError, StoreErrorKind};

/// An error of the Blob service.
#[derive(Debug)]
pub(super) struct AzureError {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl From<HeaderError> for AzureError {
    fn from(error: HeaderError) -> Self {
        Self::bad_request(error.code(), error.to_string())
    }
}

impl AzureError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), fields: Vec::new() }
    }

    pub(super) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.fields.push((name, value));
        self
    }

    pub(super) fn invalid_field(name: &str, rule: &str) -> Self {
        Self::bad_request("InvalidHeaderValue", format!("{name}: {rule}"))
    }

    pub(super) fn missing_field(name: &str) -> Self {
        Self::bad_request("MissingRequiredHeader", format!("the header {name} is required"))
    }

    pub(super) fn unsupported_field(name: &str) -> Self {
        Self::bad_request("UnsupportedHeader", format!("the header {name} is not supported by this operation"))
    }

    pub(super) fn invalid_parameter(name: &str, rule: &str) -> Self {
        Self::bad_request("InvalidQueryParameterValue", format!("{name}: {rule}"))
    }

    pub(super) fn condition_not_met() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "ConditionNotMet", "a condition of the request is false")
    }

    pub(super) fn blob_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "BlobNotFound", "the blob does not exist")
    }

    pub(super) fn container_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "ContainerNotFound", "the container does not exist")
    }

    pub(super) fn too_large(limit: u64) -> Self {
        let message = format!("the body is longer than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", message)
    }

    pub(super) fn busy() -> Self {
        let message = "the service is busy, or another write is in flight: try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy", message).with(RETRY_AFTER, 1.into())
    }

    pub(super) fn invalid_range(length: u64) -> Self {
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", "the range starts beyond the end of the blob")
            .with(CONTENT_RANGE, range::unsatisfied_content_range(length))
    }

    /// Translates an error of the store for an operation on a blob.
    pub(super) fn of_blob(error: impl Into<StoreError>) -> Self {
        let error = error.into();
        match error.kind() {
            StoreErrorKind::LeaseFailed(failure) => {
                Self::new(StatusCode::PRECONDITION_FAILED, failure.blob_code(), failure.to_string())
            }
            _ => Self::of_store(&error),
        }
    }

    /// Translates an error of the store for an operation on a container.
    pub(super) fn of_container(error: impl Into<StoreError>) -> Self {
        let error = error.into();
        match error.kind() {
            StoreErrorKind::LeaseFailed(failure) => {
                Self::new(StatusCode::PRECONDITION_FAILED, failure.container_code(), failure.to_string())
            }
            _ => Self::of_store(&error),
        }
    }

    fn of_store(error: &StoreError) -> Self {
        let text = || error.to_string();
        let answer = match error.kind() {
            StoreErrorKind::PreconditionFailed { current, .. } => match current {
                Some(tag) => Self::condition_not_met().with(ETAG, tag.to_header()),
                None => Self::condition_not_met(),
            },
            StoreErrorKind::InFlight { .. } | StoreErrorKind::Unavailable => Self::busy(),
            StoreErrorKind::NotFound => Self::blob_not_found(),
            StoreErrorKind::ContainerNotFound => Self::container_not_found(),
            StoreErrorKind::ContainerExists => Self::new(StatusCode::CONFLICT, "ContainerAlreadyExists", text()),
            StoreErrorKind::LeaseConflict(conflict) => Self::new(StatusCode::CONFLICT, conflict.code(), text()),
            StoreErrorKind::TooLarge { limit } => Self::too_large(*limit),
            StoreErrorKind::Interrupted | StoreErrorKind::LengthMismatch => Self::bad_request("IncompleteBody", text()),
            StoreErrorKind::DigestMismatch => super::md5::mismatch(),
            StoreErrorKind::Unsupported => Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text()),
            StoreErrorKind::Full => Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", "no space left"),
            StoreErrorKind::OutcomeUnknown => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "OperationTimedOut",
                "the outcome of the write is unknown: read the blob before sending it again",
            ),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "see the server's log"),
        };
        if answer.status.is_server_error() {
            tracing::error!(%error, "the store failed");
        }
        answer
    }

    /// Builds the response. A response to HEAD has neither a body nor a content type.
    pub(super) fn into_response(self, method: &Method) -> Response<BlobBody> {
        let mut xml = Xml::begin("Error");
        xml.text("Code", self.code);
        xml.text("Message", &self.message);
        let text = xml.end("Error");
        let mut response = Response::new(BlobBody::empty());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(azure::ERROR_CODE, HeaderValue::from_static(self.code));
        headers.extend(self.fields);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("SharedKey"));
        }
        if *method != Method::HEAD {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(super::xml::MEDIA_TYPE));
            headers.insert(CONTENT_LENGTH, text.len().into());
            *response.body_mut() = text.into();
        }
        response
    }
}

/// Adds the error code that SDKs expect in a 304, which has no body.
pub(super) fn mark_not_modified(response: &mut Response<BlobBody>) {
    response.headers_mut().insert(azure::ERROR_CODE, HeaderValue::from_static("ConditionNotMet"));
}

impl From<AuthError> for AzureError {
    fn from(error: AuthError) -> Self {
        Self::new(error.status(), error.code(), error.to_string())
    }
}

impl From<InvalidName> for AzureError {
    fn from(error: InvalidName) -> Self {
        Self::bad_request("InvalidResourceName", error.to_string())
    }
}
