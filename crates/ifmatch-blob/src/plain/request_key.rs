//! The identity of a request with an `Idempotency-Key`.

use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE};
use http::request::Parts;
use ifmatch_core::lease::azure;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;

use super::fields::{METADATA, repeated};
use crate::store::RequestKey;

/// The header field that identifies a request and its retries.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Prefix of the header fields about leases.
const LEASE: &str = "lease-";
/// Maximum length of a key in bytes.
const MAX_LEN: usize = 255;

/// Returns the identity of a request: its key, its query, and every header field that affects the outcome. The path is not part of
/// it, since answers are remembered per blob.
pub(super) fn of(head: &Parts) -> Result<Option<RequestKey>, Problem> {
    let mut lines = head.headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(key) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(repeated(IDEMPOTENCY_KEY.as_str()));
    }
    if key.is_empty() || key.len() > MAX_LEN {
        return Err(Problem::bad_request(format!("{IDEMPOTENCY_KEY} has 1 to {MAX_LEN} bytes")));
    }
    let mut fields: Vec<(&str, &[u8])> = head
        .headers
        .iter()
        .filter(|(name, _)| decides(name))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    fields.sort_by_key(|(name, _)| *name);
    let query = head.uri.query().unwrap_or_default();
    let mut parts = vec![key.as_bytes(), head.method.as_str().as_bytes(), query.as_bytes()];
    parts.extend(fields.iter().flat_map(|(name, value)| [name.as_bytes(), value]));
    Ok(Some(RequestKey::of(&parts)))
}

fn decides(name: &HeaderName) -> bool {
    let kept = [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_DISPOSITION, CACHE_CONTROL];
    kept.contains(name)
        || Preconditions::WRITE_HEADERS.contains(name)
        || *name == azure::ID
        || name.as_str().starts_with(LEASE)
        || name.as_str().starts_with(METADATA)
}
