//! Requests: the resource, query parameters and filters.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

pub(crate) mod changeset;
pub(crate) mod filter;
pub(crate) mod metadata_level;
pub(crate) mod options;
pub(crate) mod resource;
pub(crate) mod verb;

/// Returns the content type of a body with its parameters, or an empty string.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|media| media.to_str().ok())
        .unwrap_or_default()
}
