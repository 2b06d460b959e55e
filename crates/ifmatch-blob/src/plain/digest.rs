//! The digest that a request declares for its body (RFC 9530).

use http::{HeaderMap, HeaderName};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::problem::Problem;

/// `Repr-Digest`
pub(super) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// `Content-Digest`
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// Returns the SHA-256 digest that a request declares. A whole body is its representation, so both fields apply.
pub(super) fn promised(headers: &HeaderMap) -> Result<Option<ContentHash>, Problem> {
    let read = |name: HeaderName| {
        let invalid = |error| Problem::bad_request(format!("{name}: {error}"));
        ContentHash::from_headers(headers, name.clone()).map_err(invalid)
    };
    match (read(REPR_DIGEST)?, read(CONTENT_DIGEST)?) {
        (Some(one), Some(other)) if one != other => {
            Err(Problem::bad_request("repr-digest and content-digest contradict each other"))
        }
        (one, other) => Ok(one.or(other)),
    }
}
