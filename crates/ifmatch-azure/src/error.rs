//! Errors, with the codes of the Blob service.

use std::borrow::Cow;

use http::header::{CONTENT_RANGE, ETAG, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use ifmatch_blob::documents::Crowded;
use ifmatch_blob::name::InvalidName;
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::append::AppendFailure;
use ifmatch_core::lease::azure::HeaderError;
use ifmatch_core::range;

/// An error of the Blob service.
#[derive(Debug)]
pub(crate) struct AzureError {
    pub(crate) status: StatusCode,
    /// The error code, by which SDKs tell errors apart.
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
    /// Headers of the response, besides the usual ones.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl AzureError {
    /// Creates an error with this code, and a message that says what to do.
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            headers: Vec::new(),
        }
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// Adds a header to the response.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn invalid_header(name: &str, rule: &str) -> Self {
        Self::bad_request("InvalidHeaderValue", format!("{name}: {rule}"))
    }

    pub(crate) fn missing_header(name: &str) -> Self {
        Self::bad_request(
            "MissingRequiredHeader",
            format!("the header {name} is required"),
        )
    }

    pub(crate) fn unsupported_header(name: &str) -> Self {
        Self::bad_request(
            "UnsupportedHeader",
            format!("this operation doesn't support the header {name}"),
        )
    }

    pub(crate) fn invalid_parameter(name: &str, rule: &str) -> Self {
        Self::bad_request("InvalidQueryParameterValue", format!("{name}: {rule}"))
    }

    pub(crate) fn condition_not_met() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "ConditionNotMet",
            "a condition of the request is false. Read the current version before you retry",
        )
    }

    pub(crate) fn blob_not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "BlobNotFound",
            "no such blob. Check its name",
        )
    }

    pub(crate) fn container_not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "ContainerNotFound",
            "no such container. Create it first",
        )
    }

    pub(crate) fn too_large(limit: u64) -> Self {
        let message = format!("the body is larger than {limit} bytes. Send it in blocks");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestBodyTooLarge",
            message,
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "see the server's log",
        )
    }

    /// The error for a request that may succeed if it is repeated.
    pub(crate) fn busy() -> Self {
        Self::busy_because("the service is busy, or another write is in flight. Retry")
    }

    pub(crate) fn crowded(crowded: Crowded) -> Self {
        Self::busy_because(crowded.to_string())
    }

    pub(crate) fn busy_because(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy", message)
            .with(RETRY_AFTER, 1.into())
    }

    pub(crate) fn md5_mismatch() -> Self {
        Self::bad_request(
            "Md5Mismatch",
            "the body doesn't match the request's MD5. Send it again",
        )
    }

    pub(crate) fn crc64_mismatch() -> Self {
        Self::bad_request(
            "Crc64Mismatch",
            "the body doesn't match the request's CRC-64. Send it again",
        )
    }

    /// The error for an operation on a blob of another type.
    pub(crate) fn other_type() -> Self {
        let message = "the blob's type doesn't support this operation. A blob keeps its type until it is deleted";
        Self::new(StatusCode::CONFLICT, "InvalidBlobType", message)
    }

    fn append_failed(failure: AppendFailure) -> Self {
        let (status, code) = match failure {
            AppendFailure::Position => (
                StatusCode::PRECONDITION_FAILED,
                "AppendPositionConditionNotMet",
            ),
            AppendFailure::MaxSize => (
                StatusCode::PRECONDITION_FAILED,
                "MaxBlobSizeConditionNotMet",
            ),
            AppendFailure::Sealed => (StatusCode::CONFLICT, "BlobIsSealed"),
            AppendFailure::BlockCount => (StatusCode::CONFLICT, "BlockCountExceedsLimit"),
        };
        Self::new(status, code, failure.to_string())
    }

    pub(crate) fn source_condition_not_met() -> Self {
        let message =
            "a condition on the source of the copy is false. Read the source before you retry";
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "SourceConditionNotMet",
            message,
        )
    }

    /// The error for a copy from another account or server.
    pub(crate) fn foreign_source() -> Self {
        let message = "the source must be a blob of the same account at this request's host: the service contacts no other \
                       server";
        Self::bad_request("CopyAcrossAccountsNotSupported", message)
    }

    pub(crate) fn invalid_batch(rule: impl Into<Cow<'static, str>>) -> Self {
        Self::bad_request("InvalidInput", rule)
    }

    pub(crate) fn invalid_range(length: u64) -> Self {
        Self::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "InvalidRange",
            "the range starts past the end of the blob",
        )
        .with(CONTENT_RANGE, range::unsatisfied_content_range(length))
    }

    /// Translates an error of the store for an operation on a blob.
    pub(crate) fn of_blob(error: impl Into<StoreError>) -> Self {
        let error = error.into();
        match error.kind() {
            StoreErrorKind::LeaseFailed(failure) => Self::new(
                StatusCode::PRECONDITION_FAILED,
                failure.blob_code(),
                failure.to_string(),
            ),
            _ => Self::of_store(&error),
        }
    }

    /// Translates an error of the store for an operation on a container.
    pub(crate) fn of_container(error: impl Into<StoreError>) -> Self {
        let error = error.into();
        match error.kind() {
            StoreErrorKind::LeaseFailed(failure) => Self::new(
                StatusCode::PRECONDITION_FAILED,
                failure.container_code(),
                failure.to_string(),
            ),
            _ => Self::of_store(&error),
        }
    }

    /// Translates an error of the store that blobs and containers share.
    fn of_store(error: &StoreError) -> Self {
        let text = || error.to_string();
        let answer = match error.kind() {
            StoreErrorKind::PreconditionFailed { current, .. } => match current {
                Some(tag) => Self::condition_not_met().with(ETAG, tag.to_header()),
                None => Self::condition_not_met(),
            },
            StoreErrorKind::InFlight { .. } | StoreErrorKind::Unavailable => Self::busy(),
            StoreErrorKind::Crowded => Self::busy_because(text()),
            StoreErrorKind::NotFound => Self::blob_not_found(),
            StoreErrorKind::ContainerNotFound => Self::container_not_found(),
            StoreErrorKind::ContainerExists => {
                Self::new(StatusCode::CONFLICT, "ContainerAlreadyExists", text())
            }
            StoreErrorKind::OtherType => Self::other_type(),
            StoreErrorKind::LeaseConflict(conflict) => {
                Self::new(StatusCode::CONFLICT, conflict.code(), text())
            }
            StoreErrorKind::AppendFailed(failure) => Self::append_failed(*failure),
            StoreErrorKind::TooLarge { limit } => Self::too_large(*limit),
            StoreErrorKind::Interrupted | StoreErrorKind::LengthMismatch => {
                Self::bad_request("IncompleteBody", text())
            }
            StoreErrorKind::DigestMismatch => Self::md5_mismatch(),
            StoreErrorKind::Unsupported => {
                Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text())
            }
            StoreErrorKind::Full => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "InsufficientStorage",
                "no space left",
            ),
            StoreErrorKind::OutcomeUnknown => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "OperationTimedOut",
                "the outcome of the write is unknown. Read the blob before you retry",
            ),
            _ => Self::internal(),
        };
        if answer.status.is_server_error() {
            error.report();
        }
        answer
    }
}

impl From<HeaderError> for AzureError {
    fn from(error: HeaderError) -> Self {
        Self::bad_request(error.code(), error.to_string())
    }
}

impl From<InvalidName> for AzureError {
    fn from(error: InvalidName) -> Self {
        Self::bad_request("InvalidResourceName", error.to_string())
    }
}
