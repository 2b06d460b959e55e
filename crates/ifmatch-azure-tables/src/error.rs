//! Errors of the table service: Azure's codes, as JSON.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use ifmatch_azure::auth::AuthError;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::documents::{Crowded, DocumentError};
use ifmatch_blob::store::{StoreError, StoreErrorKind};
use ifmatch_core::lease::azure::ERROR_CODE;

/// An error response.
#[derive(Debug)]
pub(crate) struct TableError {
    reason: Reason,
    detail: Option<String>,
    /// The operation of a batch that failed.
    index: Option<usize>,
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Refused(ErrorCode),
    NotAuthenticated(AuthError),
}

macro_rules! codes {
    ($($code:ident $status:ident $message:literal,)*) => {
        /// Azure's error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ErrorCode {
            $($code,)*
        }

        impl ErrorCode {
            /// Returns the name, the status and the message.
            fn parts(self) -> (&'static str, StatusCode, &'static str) {
                match self {
                    $(Self::$code => (stringify!($code), StatusCode::$status, $message),)*
                }
            }
        }
    };
}

codes! {
    AtomFormatNotSupported UNSUPPORTED_MEDIA_TYPE "Atom format is not supported.",
    CommandsInBatchActOnDifferentPartitions BAD_REQUEST
        "All commands in a batch must operate on same entity group.",
    ConditionHeadersNotSupported BAD_REQUEST "Condition headers are not supported.",
    EntityAlreadyExists CONFLICT "The specified entity already exists.",
    EntityTooLarge BAD_REQUEST "The entity is larger than the maximum allowed size (1MB).",
    InsufficientStorage INSUFFICIENT_STORAGE "The server has no space left.",
    InternalError INTERNAL_SERVER_ERROR "Server encountered an internal error. Please try again after some time.",
    InvalidDuplicateRow BAD_REQUEST
        "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
    InvalidInput BAD_REQUEST "One of the request inputs is not valid.",
    InvalidQueryParameterValue BAD_REQUEST
        "Value for one of the query parameters specified in the request URI is invalid.",
    InvalidResourceName BAD_REQUEST "The specified resource name contains invalid characters.",
    InvalidUri BAD_REQUEST "The requested URI does not represent any resource on the server.",
    KeyValueTooLarge BAD_REQUEST "The key property values are too large.",
    MissingRequiredHeader BAD_REQUEST "A required HTTP header was not specified.",
    NotImplemented NOT_IMPLEMENTED "The requested operation is not implemented on the specified resource.",
    OperationTimedOut INTERNAL_SERVER_ERROR "The operation could not be completed within the permitted time.",
    OutOfRangeInput BAD_REQUEST "The specified resource name length is not within the permissible limits.",
    PropertiesNeedValue BAD_REQUEST "The values are not specified for all properties in the entity.",
    PropertyNameInvalid BAD_REQUEST "The property name is invalid.",
    PropertyNameTooLong BAD_REQUEST "The property name exceeds the maximum allowed length.",
    PropertyValueTooLarge BAD_REQUEST "The property value exceeds the maximum allowed size (64KB).",
    RequestBodyTooLarge PAYLOAD_TOO_LARGE "The request body is too large and exceeds the maximum permissible limit.",
    ResourceNotFound NOT_FOUND "The specified resource does not exist.",
    ServerBusy SERVICE_UNAVAILABLE "The server is currently unable to receive requests. Please retry your request.",
    TableAlreadyExists CONFLICT "The table specified already exists.",
    TableNotFound NOT_FOUND "The table specified does not exist.",
    TooManyProperties BAD_REQUEST "The entity contains more properties than allowed.",
    UnsupportedHttpVerb METHOD_NOT_ALLOWED "The resource doesn't support the specified HTTP verb.",
    UpdateConditionNotSatisfied PRECONDITION_FAILED
        "The update condition specified in the request was not satisfied.",
    XMethodIncorrectCount BAD_REQUEST "Two or more X-HTTP-Method headers are specified.",
    XMethodIncorrectValue BAD_REQUEST "The specified X-HTTP-Method header is invalid.",
    XMethodNotUsingPost BAD_REQUEST "The request uses X-HTTP-Method with an HTTP verb other than POST.",
}

impl TableError {
    /// Creates an error with the usual message of its code.
    pub(crate) fn new(code: ErrorCode) -> Self {
        Self {
            reason: Reason::Refused(code),
            detail: None,
            index: None,
        }
    }

    /// Creates an `InvalidInput` error with details.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidInput).detail(detail)
    }

    /// Adds the index of the failed operation of a batch.
    pub(crate) fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// Adds details to the message.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Returns the code. Panics for authentication errors.
    #[cfg(test)]
    pub(crate) fn code(&self) -> ErrorCode {
        match self.reason {
            Reason::Refused(code) => code,
            Reason::NotAuthenticated(error) => panic!("{error}"),
        }
    }

    /// Returns the name of the error, for the log.
    pub(crate) fn name(&self) -> &'static str {
        match self.reason {
            Reason::Refused(code) => code.parts().0,
            Reason::NotAuthenticated(error) => error.code(),
        }
    }

    /// Returns the response.
    pub(crate) fn to_response(&self) -> Response<BlobBody> {
        let (code, status, message) = match self.reason {
            Reason::Refused(code) => code.parts(),
            Reason::NotAuthenticated(error) => (
                error.code(),
                error.status(),
                "Server failed to authenticate the request.",
            ),
        };
        let detail = match self.reason {
            Reason::Refused(_) => self.detail.clone(),
            Reason::NotAuthenticated(error) => Some(error.to_string()),
        };
        let message = detail.map_or(message.to_owned(), |detail| format!("{message}\n{detail}"));
        // Clients take the index from the text before the colon.
        let message = match self.index {
            Some(index) => format!("{index}:{message}"),
            None => message,
        };
        let body = json!({ "odata.error": { "code": code, "message": { "lang": "en-US", "value": message } } });
        let mut response = Response::new(BlobBody::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/json;charset=utf-8"),
        );
        headers.insert(ERROR_CODE, HeaderValue::from_static(code));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<AuthError> for TableError {
    fn from(error: AuthError) -> Self {
        Self {
            reason: Reason::NotAuthenticated(error),
            detail: None,
            index: None,
        }
    }
}

impl From<DocumentError> for TableError {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::TooLong(_) => Self::new(ErrorCode::RequestBodyTooLarge),
            DocumentError::Crowded(crowded) => crowded.into(),
            DocumentError::Broken(_) => Self::invalid("the body ended early"),
        }
    }
}

impl From<Crowded> for TableError {
    fn from(crowded: Crowded) -> Self {
        Self::new(ErrorCode::ServerBusy).detail(crowded.to_string())
    }
}

/// Translates errors of the store that an operation doesn't handle itself. Details go to the log only.
impl From<StoreError> for TableError {
    fn from(error: StoreError) -> Self {
        error.report();
        match error.kind() {
            StoreErrorKind::InFlight { .. } | StoreErrorKind::Unavailable => {
                Self::new(ErrorCode::ServerBusy)
            }
            StoreErrorKind::Crowded => Self::new(ErrorCode::ServerBusy).detail(error.to_string()),
            StoreErrorKind::OutcomeUnknown => Self::new(ErrorCode::OperationTimedOut),
            StoreErrorKind::Unsupported => {
                Self::new(ErrorCode::NotImplemented).detail("the store cannot keep tables")
            }
            StoreErrorKind::Full => Self::new(ErrorCode::InsufficientStorage),
            _ => Self::new(ErrorCode::InternalError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As for blobs: the client must free space, or ask for it, rather than try again.
    #[test]
    fn a_full_store_is_no_internal_error() {
        let response = TableError::from(StoreError::from(StoreErrorKind::Full))
            .at(3)
            .to_response();
        assert_eq!(response.status(), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(response.headers()[ERROR_CODE], "InsufficientStorage");
    }
}
