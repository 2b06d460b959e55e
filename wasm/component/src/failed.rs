//! The errors of WASI, as the layer takes them.

use std::fmt;

use wasip3::http::types::ErrorCode;

/// The host, the guest or a server has failed.
#[derive(Clone, Debug)]
pub(crate) struct FailedRequest(pub(crate) ErrorCode);

impl FailedRequest {
    /// Returns the code of an error that has passed through the layer.
    pub(crate) fn code_of(error: Box<dyn std::error::Error + Send + Sync>) -> ErrorCode {
        match error.downcast::<Self>() {
            Ok(failed) => failed.0,
            Err(error) => ErrorCode::InternalError(Some(error.to_string())),
        }
    }
}

impl fmt::Display for FailedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for FailedRequest {}
