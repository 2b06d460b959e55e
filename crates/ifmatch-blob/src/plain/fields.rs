//! The fields of requests: those that are stored with a blob, leases, digests (RFC 9530), and the identity of a request.

use std::collections::BTreeMap;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, PRAGMA,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::fields;
use ifmatch_core::lease::{self, InvalidLeaseId, LeaseId, LeaseUse, azure};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;

use crate::headers::{BlobHeaders, FieldText};
use crate::store::RequestKey;

/// Prefix of the user's own fields.
pub(super) const METADATA: &str = "x-meta-";
/// Maximum total size of names and values kept with a blob, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// Returns the fields of a request to keep.
pub(super) fn from_request(headers: &HeaderMap) -> Result<BlobHeaders, Problem> {
    let kept = BlobHeaders {
        content_type: field(headers, &CONTENT_TYPE)?,
        content_encoding: field(headers, &CONTENT_ENCODING)?,
        content_language: field(headers, &CONTENT_LANGUAGE)?,
        content_disposition: field(headers, &CONTENT_DISPOSITION)?,
        cache_control: if is_of_fetch(headers) {
            None
        } else {
            field(headers, &CACHE_CONTROL)?
        },
        metadata: metadata(headers)?,
        ..BlobHeaders::default()
    };
    if size(&kept) > MAX_BYTES {
        let detail =
            format!("the header fields to keep with the blob exceed {MAX_BYTES} bytes in total");
        return Err(Problem::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "fields-too-large",
        )
        .detail(detail));
    }
    Ok(kept)
}

/// Returns `true` if `Cache-Control` isn't the program's. `fetch` adds these two fields to a request with `If-Match` or another
/// condition unless the program has set them (Fetch Standard, HTTP-network-or-cache fetch), and they are about the request.
fn is_of_fetch(headers: &HeaderMap) -> bool {
    let is_no_cache = |name: HeaderName| {
        let mut lines = fields::lines(headers, name);
        lines
            .next()
            .is_some_and(|value| value.as_bytes() == b"no-cache")
            && lines.next().is_none()
    };
    is_no_cache(CACHE_CONTROL) && is_no_cache(PRAGMA)
}

/// Returns `true` if a request names a lease id.
pub(super) fn names_lease(headers: &HeaderMap) -> bool {
    fields::has(headers, &lease::fields::ID) || fields::has(headers, &azure::ID)
}

/// Returns the lease that a write uses.
pub(super) fn lease_of_write(headers: &HeaderMap) -> Result<LeaseUse, Problem> {
    Ok(lease::fields::write(headers, lease_id(headers)?)?)
}

/// Returns the lease id of a request, also by the name of the Azure dialect. A repeated field is ambiguous and rejected.
pub(super) fn lease_id(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    let mut lines =
        fields::lines(headers, lease::fields::ID).chain(fields::lines(headers, azure::ID));
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(repeated(lease::fields::ID.as_str()));
    }
    let id = line.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some)
        .ok_or_else(|| Problem::bad_request(format!("{}: {InvalidLeaseId}", lease::fields::ID)))
}

/// Adds the kept fields that are `sent` to a response, and in any case the user's own.
pub(super) fn add_to(
    response: &mut HeaderMap,
    kept: &BlobHeaders,
    sent: impl Fn(&HeaderName) -> bool,
) {
    for (name, value) in named(kept) {
        if let Some(value) = value.as_ref().filter(|_| sent(&name)) {
            response.insert(name, value.to_header());
        }
    }
    // Browsers must not sniff a type, neither for bytes without one nor for others.
    if kept.content_type.is_none() && sent(&CONTENT_TYPE) {
        response.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
    }
    response.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    for (name, value) in &kept.metadata {
        if let Ok(name) = HeaderName::try_from(format!("{METADATA}{name}")) {
            response.insert(name, value.to_header());
        }
    }
}

fn named(kept: &BlobHeaders) -> [(HeaderName, &Option<FieldText>); 5] {
    [
        (CONTENT_TYPE, &kept.content_type),
        (CONTENT_ENCODING, &kept.content_encoding),
        (CONTENT_LANGUAGE, &kept.content_language),
        (CONTENT_DISPOSITION, &kept.content_disposition),
        (CACHE_CONTROL, &kept.cache_control),
    ]
}

/// Returns one field. Lines of a list are joined (RFC 9110 §5.3); a repetition of any other field is ambiguous and
/// rejected.
fn field(headers: &HeaderMap, name: &HeaderName) -> Result<Option<FieldText>, Problem> {
    let lines: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    let is_list = *name != CONTENT_TYPE && *name != CONTENT_DISPOSITION;
    match lines.as_slice() {
        [] => Ok(None),
        [line] => text((*line).clone(), name.as_str()).map(Some),
        lines if is_list => {
            let joined = lines
                .iter()
                .map(|line| line.as_bytes())
                .collect::<Vec<_>>()
                .join(&b", "[..]);
            let joined = HeaderValue::from_bytes(&joined).map_err(|_| not_text(name.as_str()))?;
            text(joined, name.as_str()).map(Some)
        }
        _ => Err(repeated(name.as_str())),
    }
}

fn metadata(headers: &HeaderMap) -> Result<BTreeMap<Box<str>, FieldText>, Problem> {
    let mut metadata = BTreeMap::new();
    for (name, value) in headers {
        let Some(own) = name.as_str().strip_prefix(METADATA) else {
            continue;
        };
        if own.is_empty() {
            return Err(Problem::bad_request(format!("no name follows {METADATA}")));
        }
        if metadata
            .insert(own.into(), text(value.clone(), name.as_str())?)
            .is_some()
        {
            return Err(repeated(name.as_str()));
        }
    }
    Ok(metadata)
}

fn text(value: HeaderValue, name: &str) -> Result<FieldText, Problem> {
    FieldText::from_header(value).map_err(|_| not_text(name))
}

fn not_text(name: &str) -> Problem {
    Problem::bad_request(format!(
        "{name} has characters other than visible ASCII ones: encode them"
    ))
}

/// Returns the refusal of a field that is sent more than once.
pub(super) fn repeated(name: &str) -> Problem {
    Problem::bad_request(format!("{name} is repeated. Send it once"))
}

fn size(kept: &BlobHeaders) -> usize {
    let named = named(kept)
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let named: usize = named
        .map(|(name, value)| name.as_str().len() + value.as_str().len())
        .sum();
    let own = kept
        .metadata
        .iter()
        .map(|(name, value)| METADATA.len() + name.len() + value.as_str().len());
    named + own.sum::<usize>()
}

/// `Repr-Digest` (RFC 9530 §3)
pub(super) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// `Content-Digest` (RFC 9530 §2)
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// Returns the SHA-256 digest that a request declares. A whole body is its representation, so both fields apply.
pub(super) fn promised_digest(headers: &HeaderMap) -> Result<Option<ContentHash>, Problem> {
    let read = |name: HeaderName| {
        let invalid = |error| Problem::bad_request(format!("{name}: {error}"));
        ContentHash::from_headers(headers, name.clone()).map_err(invalid)
    };
    match (read(REPR_DIGEST)?, read(CONTENT_DIGEST)?) {
        (Some(one), Some(other)) if one != other => Err(Problem::bad_request(
            "repr-digest and content-digest contradict each other",
        )),
        (one, other) => Ok(one.or(other)),
    }
}

/// The header field that identifies a request and its retries.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Prefix of the header fields about leases.
const LEASE: &str = "lease-";
/// Maximum length of a key in bytes.
const MAX_KEY_LEN: usize = 255;

/// Returns the identity of a request: its key, its query, and every header field that affects the outcome. The path isn't part of
/// it, since answers are remembered per blob.
pub(super) fn request_key(head: &Parts) -> Result<Option<RequestKey>, Problem> {
    let mut lines = head.headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(key) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(repeated(IDEMPOTENCY_KEY.as_str()));
    }
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(Problem::bad_request(format!(
            "{IDEMPOTENCY_KEY} is empty, or longer than {MAX_KEY_LEN} bytes"
        )));
    }
    let mut fields: Vec<(&str, &[u8])> = head
        .headers
        .iter()
        .filter(|(name, _)| decides(name))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    fields.sort_by_key(|(name, _)| *name);
    let query = head.uri.query().unwrap_or_default();
    let mut parts = vec![
        key.as_bytes(),
        head.method.as_str().as_bytes(),
        query.as_bytes(),
    ];
    parts.extend(
        fields
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), value]),
    );
    Ok(Some(RequestKey::of(&parts)))
}

/// Returns `true` if a header field affects the outcome of a write.
fn decides(name: &HeaderName) -> bool {
    let kept = [
        CONTENT_TYPE,
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
        CONTENT_DISPOSITION,
        CACHE_CONTROL,
    ];
    kept.contains(name)
        || Preconditions::WRITE_HEADERS.contains(name)
        || *name == azure::ID
        || name.as_str().starts_with(LEASE)
        || name.as_str().starts_with(METADATA)
}
