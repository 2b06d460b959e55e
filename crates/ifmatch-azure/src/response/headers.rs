//! Headers that describe blobs, containers and leases.

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_blob::headers::{BlobHeaders, Copied};
use ifmatch_blob::store::BlobInfo;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::lease::{LeaseDuration, LeaseState, SeenLease};

use crate::request::headers::{BLOB_TYPE, METADATA};

/// The content type of a blob that was written without one.
pub(crate) const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

pub(crate) const APPEND_OFFSET: HeaderName = HeaderName::from_static("x-ms-blob-append-offset");
pub(crate) const BLOCK_COUNT: HeaderName =
    HeaderName::from_static("x-ms-blob-committed-block-count");
pub(crate) const SEALED: HeaderName = HeaderName::from_static("x-ms-blob-sealed");

pub(crate) const COPY_ID: HeaderName = HeaderName::from_static("x-ms-copy-id");
pub(crate) const COPY_STATUS: HeaderName = HeaderName::from_static("x-ms-copy-status");
/// Every copy is complete when its response is sent.
pub(crate) const SUCCESS: HeaderValue = HeaderValue::from_static("success");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const COPY_PROGRESS: HeaderName = HeaderName::from_static("x-ms-copy-progress");
const COPY_COMPLETION_TIME: HeaderName = HeaderName::from_static("x-ms-copy-completion-time");

/// Adds the copy that made a blob to a response.
pub(crate) fn add_copy(response: &mut HeaderMap, stored: &BlobHeaders) {
    let Some(copied) = &stored.copied else { return };
    response.insert(COPY_ID, copied.id.to_header());
    response.insert(COPY_SOURCE, copied.source.to_header());
    response.insert(COPY_STATUS, SUCCESS);
    response.extend(
        HeaderValue::try_from(progress(copied))
            .ok()
            .map(|progress| (COPY_PROGRESS, progress)),
    );
    response.insert(COPY_COMPLETION_TIME, copied.date.to_header());
}

/// Returns the progress of a complete copy.
pub(crate) fn progress(copied: &Copied) -> String {
    format!("{0}/{0}", copied.length)
}

/// Returns the tier of a blob: the chosen one, or the default.
pub(crate) fn tier(stored: &BlobHeaders) -> &str {
    stored
        .tier
        .as_ref()
        .map_or("Hot", |tier| tier.name.as_str())
}

/// Returns a blob's type.
pub(crate) fn blob_type(stored: &BlobHeaders) -> &'static str {
    if stored.append.is_some() {
        "AppendBlob"
    } else {
        "BlockBlob"
    }
}

/// Adds the type of a blob, and the state of an append blob, to a response.
pub(crate) fn add_type(response: &mut HeaderMap, stored: &BlobHeaders) {
    response.insert(BLOB_TYPE, HeaderValue::from_static(blob_type(stored)));
    if let Some(append) = &stored.append {
        response.insert(BLOCK_COUNT, append.blocks.into());
        if append.sealed {
            response.insert(SEALED, HeaderValue::from_static("true"));
        }
    }
}

/// Adds the headers stored with a blob to a response.
pub(crate) fn add_stored(response: &mut HeaderMap, stored: &BlobHeaders) {
    let named = [
        (CONTENT_TYPE, &stored.content_type),
        (CONTENT_ENCODING, &stored.content_encoding),
        (CONTENT_LANGUAGE, &stored.content_language),
        (CONTENT_DISPOSITION, &stored.content_disposition),
        (CACHE_CONTROL, &stored.cache_control),
    ];
    response.extend(
        named
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.to_header()))),
    );
    response
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static(DEFAULT_CONTENT_TYPE));
    response.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add_metadata(response, stored);
}

/// Adds the metadata to a response.
pub(crate) fn add_metadata(response: &mut HeaderMap, stored: &BlobHeaders) {
    for (name, value) in &stored.metadata {
        if let Ok(name) = HeaderName::try_from(format!("{METADATA}{name}")) {
            response.insert(name, value.to_header());
        }
    }
}

/// Adds the state of a lease to a response.
pub(crate) fn add_lease(response: &mut HeaderMap, seen: Option<&SeenLease>) {
    let (state, status, duration) = lease_properties(seen);
    let fields = [
        ("x-ms-lease-state", Some(state)),
        ("x-ms-lease-status", Some(status)),
        ("x-ms-lease-duration", duration),
    ];
    response.extend(fields.into_iter().filter_map(|(name, value)| {
        Some((
            HeaderName::from_static(name),
            HeaderValue::from_static(value?),
        ))
    }));
}

/// Returns the state, the status and, while the lease is held, the kind of its duration.
pub(crate) fn lease_properties(
    seen: Option<&SeenLease>,
) -> (&'static str, &'static str, Option<&'static str>) {
    let state = seen.map_or(LeaseState::Available, SeenLease::state);
    let duration =
        seen.filter(|_| state == LeaseState::Leased)
            .map(|seen| match seen.lease.duration() {
                LeaseDuration::Infinite => "infinite",
                LeaseDuration::Seconds(_) => "fixed",
            });
    (
        state.name(),
        if state.is_locked() {
            "locked"
        } else {
            "unlocked"
        },
        duration,
    )
}

/// Returns the second in which a blob was created, or the date of its last change if the store doesn't know: clients rely on a date.
pub(crate) fn creation_date(info: &BlobInfo) -> HttpDate {
    info.created.map_or(info.last_modified, second_of)
}

/// Returns the second of a time.
pub(crate) fn second_of(time: Timestamp) -> HttpDate {
    HttpDate::from_unix((time.micros() / 1_000_000).cast_signed())
}
