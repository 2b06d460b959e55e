//! The headers that operations share.

use std::collections::BTreeMap;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{self, Lease, LeaseDuration, LeaseId, LeaseState};
use ifmatch_runtime::nonce;

use super::error::AzureError;
use super::md5;
use ifmatch_blob::headers::{BlobHeaders, FieldText};

pub(super) const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
const BLOB_CONTENT_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-content-type");
const BLOB_CONTENT_ENCODING: HeaderName = HeaderName::from_static("x-ms-blob-content-encoding");
const BLOB_CONTENT_LANGUAGE: HeaderName = HeaderName::from_static("x-ms-blob-content-language");
const BLOB_CONTENT_DISPOSITION: HeaderName = HeaderName::from_static("x-ms-blob-content-disposition");
const BLOB_CACHE_CONTROL: HeaderName = HeaderName::from_static("x-ms-blob-cache-control");
/// Prefix of metadata headers.
pub(super) const METADATA: &str = "x-ms-meta-";
/// Maximum size of the metadata, in bytes of names and values.
const MAX_METADATA: usize = 8 * 1024;
/// Maximum size of the other headers stored with a blob, in bytes.
const MAX_KEPT: usize = 8 * 1024;
/// The content type of a blob that was written without one.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// Returns a header that must not be repeated.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, AzureError> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => {
            let text = line.to_str().map_err(|_| AzureError::invalid_field(name.as_str(), "must be visible ASCII"))?;
            Ok(Some(text.trim()))
        }
        (Some(_), Some(_)) => Err(AzureError::invalid_field(name.as_str(), "must not be repeated")),
    }
}

/// Returns a header that is required.
pub(super) fn required<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, AzureError> {
    one(headers, name)?.filter(|text| !text.is_empty()).ok_or_else(|| AzureError::missing_field(name.as_str()))
}

/// Returns the length of the body.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, AzureError> {
    let missing = || {
        let message = "the request needs a Content-Length";
        AzureError::new(StatusCode::LENGTH_REQUIRED, "MissingContentLengthHeader", message)
    };
    let text = one(headers, &CONTENT_LENGTH)?.ok_or_else(missing)?;
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.ok_or_else(|| AzureError::invalid_field(CONTENT_LENGTH.as_str(), "must be a number of bytes"))
}

/// Parses the headers to store with a blob, except the metadata. If the body is the blob, the standard headers that
/// describe the body apply to it.
pub(super) fn kept(headers: &HeaderMap, body_is_blob: bool) -> Result<BlobHeaders, AzureError> {
    let field = |own: HeaderName, standard: HeaderName| -> Result<Option<FieldText>, AzureError> {
        let standard = if body_is_blob { one(headers, &standard)? } else { None };
        let text = one(headers, &own)?.or(standard).filter(|text| !text.is_empty());
        text.map(|text| keep(own.as_str(), text)).transpose()
    };
    let kept = BlobHeaders {
        content_type: field(BLOB_CONTENT_TYPE, CONTENT_TYPE)?,
        content_encoding: field(BLOB_CONTENT_ENCODING, CONTENT_ENCODING)?,
        content_language: field(BLOB_CONTENT_LANGUAGE, CONTENT_LANGUAGE)?,
        content_disposition: field(BLOB_CONTENT_DISPOSITION, CONTENT_DISPOSITION)?,
        cache_control: field(BLOB_CACHE_CONTROL, CACHE_CONTROL)?,
        content_md5: match md5::given(headers, &md5::BLOB_CONTENT_MD5)? {
            None if body_is_blob => md5::given(headers, &md5::CONTENT_MD5)?,
            own => own,
        },
        metadata: BTreeMap::new(),
    };
    let BlobHeaders { content_type, content_encoding, content_language, content_disposition, cache_control, .. } =
        &kept;
    let all = [content_type, content_encoding, content_language, content_disposition, cache_control];
    if all.into_iter().flatten().map(|text| text.as_str().len()).sum::<usize>() > MAX_KEPT {
        let rule = format!("the headers stored with a blob have at most {MAX_KEPT} bytes together");
        return Err(AzureError::invalid_field("x-ms-blob-…", &rule));
    }
    Ok(kept)
}

/// Parses the metadata.
pub(super) fn metadata(headers: &HeaderMap) -> Result<BTreeMap<Box<str>, FieldText>, AzureError> {
    let mut metadata = BTreeMap::new();
    let mut size = 0;
    for name in headers.keys() {
        let Some(own) = name.as_str().strip_prefix(METADATA) else { continue };
        if !is_metadata_name(own) {
            let message =
                format!("{name}: a metadata name consists of a-z, 0-9 and _, and does not start with a digit");
            return Err(AzureError::bad_request("InvalidMetadata", message));
        }
        let value = one(headers, name)?.unwrap_or_default();
        size += own.len() + value.len();
        metadata.insert(own.into(), keep(name.as_str(), value)?);
    }
    if size > MAX_METADATA {
        let message = format!("the metadata has at most {MAX_METADATA} bytes");
        return Err(AzureError::bad_request("MetadataTooLarge", message));
    }
    Ok(metadata)
}

fn is_metadata_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(inner) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

fn keep(name: &str, text: &str) -> Result<FieldText, AzureError> {
    FieldText::new(text).map_err(|error| AzureError::invalid_field(name, &error.to_string()))
}

/// Adds the headers stored with a blob to a response.
pub(super) fn add_kept(response: &mut HeaderMap, kept: &BlobHeaders) {
    let named = [
        (CONTENT_TYPE, &kept.content_type),
        (CONTENT_ENCODING, &kept.content_encoding),
        (CONTENT_LANGUAGE, &kept.content_language),
        (CONTENT_DISPOSITION, &kept.content_disposition),
        (CACHE_CONTROL, &kept.cache_control),
    ];
    response.extend(named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_header()))));
    response.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(DEFAULT_TYPE));
    response.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add_metadata(response, kept);
}

/// Adds the metadata to a response.
pub(super) fn add_metadata(response: &mut HeaderMap, kept: &BlobHeaders) {
    for (name, value) in &kept.metadata {
        if let Ok(name) = HeaderName::try_from(format!("{METADATA}{name}")) {
            response.insert(name, value.to_header());
        }
    }
}

/// Adds the state of a lease to a response.
pub(super) fn add_lease(response: &mut HeaderMap, held: Option<&Lease>, now: Timestamp) {
    let (state, status, duration) = lease_properties(held, now);
    let fields =
        [("x-ms-lease-state", Some(state)), ("x-ms-lease-status", Some(status)), ("x-ms-lease-duration", duration)];
    response.extend(
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_static(value?)))),
    );
}

/// Returns the state, the status and, while the lease is held, the kind of its duration.
pub(super) fn lease_properties(
    held: Option<&Lease>,
    now: Timestamp,
) -> (&'static str, &'static str, Option<&'static str>) {
    let state = lease::state(held, now);
    let duration = held.filter(|_| state == LeaseState::Leased).map(|held| match held.duration() {
        LeaseDuration::Infinite => "infinite",
        LeaseDuration::Seconds(_) => "fixed",
    });
    (state.name(), if state.is_locked() { "locked" } else { "unlocked" }, duration)
}

/// Returns a random GUID, if the platform provides randomness.
pub(super) fn guid() -> Option<LeaseId> {
    let numbers = u128::from(nonce().ok()?) << 64 | u128::from(nonce().ok()?);
    Some(LeaseId::from_random(numbers.to_ne_bytes()))
}
