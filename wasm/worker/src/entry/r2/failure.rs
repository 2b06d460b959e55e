//! What R2's errors mean.

use std::error::Error as StdError;

use ifmatch_blob_objects::TooSoon;
use object_store::path::Path;
use object_store::{Error, UpdateVersion};

use crate::tasks::allowance::SPENT;

/// Why R2 refused or failed. Its errors end in a number in parentheses; without a known one, nobody can tell whether what
/// was asked took place.
pub(super) fn of(location: &Path, error: impl Into<worker::Error>) -> Error {
    let text = error.into().to_string();
    let code = code(&text);
    let path = location.to_string();
    let source: Box<dyn StdError + Send + Sync> = text.as_str().into();
    match code {
        // There is no such object.
        Some(10_007) => Error::NotFound { path, source },
        // The metadata is too long; the name is too long, or holds what it may not; the object is too large.
        Some(10_012 | 10_020 | 100_100) => Error::NotSupported { source },
        Some(10_031) => Error::Precondition { path, source },
        // R2 accepts one write per second of an object and refused this one.
        Some(10_058) => Error::Generic { store: "R2", source: Box::new(TooSoon) },
        None if text.contains(SPENT) => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: "R2", source },
    }
}

/// The object is another one, or there is one by now.
pub(super) fn changed(location: &Path, expected: Option<&UpdateVersion>) -> Error {
    let path = location.to_string();
    match expected {
        None => Error::AlreadyExists { path, source: "there is an object of this name".into() },
        Some(_) => Error::Precondition { path, source: "the object is another version".into() },
    }
}

/// The number in an error of R2: `put: Unspecified error (10001)`.
fn code(text: &str) -> Option<u32> {
    let (_, number) = text.strip_suffix(')')?.rsplit_once('(')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_known_by_its_number() {
        for (text, number) in [
            ("Error: put: Your metadata headers exceed the maximum allowed metadata size. (10012)", Some(10_012)),
            ("Error: get: (odd) The specified key does not exist. (10007)", Some(10_007)),
            ("Network connection lost.", None),
            ("()", None),
            ("(a)", None),
        ] {
            assert_eq!(code(text), number, "{text}");
        }
    }
}
