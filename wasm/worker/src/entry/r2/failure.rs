//! Errors of R2.

use std::error::Error as StdError;

use ifmatch_blob_objects::TooSoon;
use object_store::path::Path;
use object_store::{Error, UpdateVersion};

use crate::tasks::subrequests::BudgetSpent;

/// Converts an error of R2. Its messages end with a code in parentheses; with any other code than these, the request may
/// have taken effect.
pub(super) fn of(location: &Path, error: &worker::Error) -> Error {
    let text = error.to_string();
    let code = code(&text);
    let path = location.to_string();
    let source: Box<dyn StdError + Send + Sync> = text.as_str().into();
    match code {
        // No such object.
        Some(10_007) => Error::NotFound { path, source },
        // The metadata is too long; the name is too long or has invalid characters; the object is too large.
        Some(10_012 | 10_020 | 100_100) => Error::NotSupported { source },
        Some(10_031) => Error::Precondition { path, source },
        // Over the limit of one write per second and object.
        Some(10_058) => Error::Generic {
            store: "R2",
            source: Box::new(TooSoon),
        },
        _ => Error::Generic {
            store: "R2",
            source,
        },
    }
}

/// Returns `true` for a request that R2 has refused because of its limit of one write per second and object.
pub(super) fn is_too_soon(error: &Error) -> bool {
    matches!(error, Error::Generic { source, .. } if source.is::<TooSoon>())
}

/// Error for a request that wasn't sent.
pub(super) fn unsent(location: &Path, spent: BudgetSpent) -> Error {
    Error::PermissionDenied {
        path: location.to_string(),
        source: Box::new(spent),
    }
}

/// Error for a failed condition.
pub(super) fn changed(location: &Path, expected: Option<&UpdateVersion>) -> Error {
    let path = location.to_string();
    match expected {
        None => Error::AlreadyExists {
            path,
            source: "there is an object of this name".into(),
        },
        Some(_) => Error::Precondition {
            path,
            source: "the object is another version".into(),
        },
    }
}

/// Returns the code of an error, such as `put: Unspecified error (10001)`.
fn code(text: &str) -> Option<u32> {
    let (_, number) = text.strip_suffix(')')?.rsplit_once('(')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code() {
        for (text, number) in [
            (
                "Error: put: Your metadata headers exceed the maximum allowed metadata size. (10012)",
                Some(10_012),
            ),
            (
                "Error: get: (odd) The specified key does not exist. (10007)",
                Some(10_007),
            ),
            ("Network connection lost.", None),
            ("()", None),
            ("(a)", None),
        ] {
            assert_eq!(code(text), number, "{text}");
        }
    }
}
