//! Recognises retries by `x-ms-client-request-id`, which SDKs keep when they send a request again.

use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE};
use http::request::Parts;
use ifmatch_core::lease::{azure, fields};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::shared_key::X_MS_DATE;

use super::headers;
use ifmatch_blob::store::RequestKey;

/// Returns the identity of a request: the client's id and every header that determines what the request does.
///
/// Used for lease operations, and for writes with a condition that can hold only once. Any other write may be
/// repeated on purpose, for example by a program that uses one id for all its requests; replaying an earlier response
/// would then be wrong.
pub(super) fn key(head: &Parts) -> Option<RequestKey> {
    let id = headers::one(&head.headers, &azure::CLIENT_REQUEST_ID).ok().flatten().filter(|id| !id.is_empty())?;
    let decides = |name: &str| {
        let standard = [CACHE_CONTROL, CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_DISPOSITION];
        let varies = [X_MS_DATE, azure::CLIENT_REQUEST_ID];
        let listed = standard.iter().chain(&Preconditions::HEADERS).any(|other| other == name);
        let of_lease = fields::TOKEN == name || fields::HOLDER == name;
        listed || of_lease || (name.starts_with("x-ms-") && !varies.iter().any(|other| other == name))
    };
    let mut fields: Vec<(&str, &[u8])> =
        head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    fields.retain(|(name, _)| decides(name));
    fields.sort_unstable();
    let query = head.uri.query().unwrap_or_default();
    let mut parts = vec![id.as_bytes(), head.method.as_str().as_bytes(), query.as_bytes()];
    parts.extend(fields.iter().flat_map(|(name, value)| [name.as_bytes(), value]));
    Some(RequestKey::of(&parts))
}
