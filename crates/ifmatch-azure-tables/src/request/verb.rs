//! The method of a request, and the permissions that it needs.

use http::request::Parts;
use http::{HeaderName, Method};

use crate::entity::etag::IfMatch;
use crate::error::{ErrorCode, TableError};

const X_HTTP_METHOD: HeaderName = HeaderName::from_static("x-http-method");

/// Returns the permissions that an operation on an entity needs. Without a condition, a change may also insert.
pub(crate) fn permissions(verb: Verb, guard: &IfMatch) -> &'static [&'static str] {
    match (verb, guard) {
        (Verb::Get, _) => &["r"],
        (Verb::Post, _) => &["a"],
        (Verb::Put | Verb::Merge, IfMatch::None) => &["a", "u"],
        (Verb::Put | Verb::Merge, _) => &["u"],
        (Verb::Delete, _) => &["d"],
    }
}

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Merge,
    Delete,
}

impl Verb {
    /// Returns the method, or the one in `X-HTTP-Method`.
    pub(crate) fn of(head: &Parts) -> Result<Self, TableError> {
        let mut others = head.headers.get_all(X_HTTP_METHOD).iter();
        let method = match (others.next(), others.next()) {
            (None, _) => return Self::named(head.method.as_str(), ErrorCode::UnsupportedHttpVerb),
            (Some(_), Some(_)) => return Err(TableError::new(ErrorCode::XMethodIncorrectCount)),
            (Some(_), None) if head.method != Method::POST => {
                return Err(TableError::new(ErrorCode::XMethodNotUsingPost));
            }
            (Some(method), None) => method.to_str().unwrap_or_default(),
        };
        match Self::named(method, ErrorCode::XMethodIncorrectValue)? {
            Self::Get | Self::Post => Err(TableError::new(ErrorCode::XMethodIncorrectValue)),
            verb => Ok(verb),
        }
    }

    /// Returns the method with this name, or an error if the service has no such method.
    fn named(method: &str, otherwise: ErrorCode) -> Result<Self, TableError> {
        Ok(match method {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" | "MERGE" => Self::Merge,
            "DELETE" => Self::Delete,
            _ => return Err(TableError::new(otherwise)),
        })
    }
}
