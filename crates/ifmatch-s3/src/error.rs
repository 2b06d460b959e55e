//! Errors of the store in S3's codes.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_blob::documents::Crowded;
use ifmatch_blob::name::{InvalidName, NameErrorKind};
use ifmatch_blob::store::{BlobInfo, StoreError, StoreErrorKind};
use ifmatch_core::precondition::Precondition;
use s3s::{S3Error, S3ErrorCode, s3_error};

use crate::answer::CONDITION;

/// Returns the error for a request that must be signed, and isn't.
pub(crate) fn unsigned() -> S3Error {
    s3_error!(
        AccessDenied,
        "the request is not signed: sign it with the key of an account"
    )
}

/// Returns the error for a bucket that doesn't exist.
pub(crate) fn no_such_bucket() -> S3Error {
    s3_error!(NoSuchBucket, "there is no such bucket: create it first")
}

/// Returns the error for a body for which there is no memory.
pub(crate) fn crowded(error: Crowded) -> S3Error {
    s3_error!(SlowDown, "{error}")
}

/// Translates an error of the store. `is_conditional` for a write with a condition.
pub(crate) fn of_store(error: &StoreError, is_conditional: bool) -> S3Error {
    let with = |code| S3Error::with_message(code, error.to_string());
    let answer = match error.kind() {
        StoreErrorKind::PreconditionFailed { precondition, .. } => with_condition(
            with(S3ErrorCode::PreconditionFailed),
            condition(*precondition),
        ),
        StoreErrorKind::InFlight { .. } if is_conditional => {
            with(S3ErrorCode::ConditionalRequestConflict)
        }
        StoreErrorKind::InFlight { retry_after } => {
            retry(with(S3ErrorCode::SlowDown), retry_after.as_secs().max(1))
        }
        StoreErrorKind::NotFound => with(S3ErrorCode::NoSuchKey),
        StoreErrorKind::ContainerNotFound => with(S3ErrorCode::NoSuchBucket),
        StoreErrorKind::ContainerExists => with(S3ErrorCode::BucketAlreadyOwnedByYou),
        StoreErrorKind::ContainerNotEmpty => with(S3ErrorCode::BucketNotEmpty),
        // As S3 refuses to change an object that is locked.
        StoreErrorKind::LeaseFailed(_) | StoreErrorKind::LeaseConflict(_) => {
            let message = format!("another client holds a lease: {error}");
            S3Error::with_message(S3ErrorCode::AccessDenied, message)
        }
        StoreErrorKind::TooLarge { .. } => with(S3ErrorCode::EntityTooLarge),
        StoreErrorKind::Interrupted | StoreErrorKind::LengthMismatch => {
            with(S3ErrorCode::IncompleteBody)
        }
        StoreErrorKind::DigestMismatch => with(S3ErrorCode::BadDigest),
        StoreErrorKind::Unsupported => with(S3ErrorCode::NotImplemented),
        StoreErrorKind::Full => {
            let mut full = s3_error!(InternalError, "the store is full. Free space on the server");
            full.set_code(S3ErrorCode::Custom("InsufficientStorage".into()));
            full.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
            full
        }
        StoreErrorKind::Crowded => retry(with(S3ErrorCode::SlowDown), 1),
        StoreErrorKind::Unavailable => retry(with(S3ErrorCode::ServiceUnavailable), 1),
        StoreErrorKind::OutcomeUnknown => {
            let what = "the outcome of the write is unknown. Read the object before you retry";
            retry(s3_error!(ServiceUnavailable, "{what}"), 1)
        }
        _ => s3_error!(InternalError, "see the server's log"),
    };
    if answer
        .status_code()
        .is_none_or(|status| status.is_server_error())
    {
        error.report();
    }
    answer
}

/// Translates an error of the store for a read, or for an operation without conditions.
pub(crate) fn plain(error: impl Into<StoreError>) -> S3Error {
    of_store(&error.into(), false)
}

/// Translates an invalid name of an object.
pub(crate) fn of_name(error: InvalidName) -> S3Error {
    match error.kind() {
        NameErrorKind::BlobTooLong => s3_error!(KeyTooLongError, "{error}"),
        _ => s3_error!(InvalidArgument, "{error}"),
    }
}

/// Returns the response 304, which is an error to `s3s`. The [answer](crate::answer) has no body.
pub(crate) fn not_modified(info: &BlobInfo) -> S3Error {
    let mut answer = S3Error::new(S3ErrorCode::NotModified);
    let tag = info.tag.iter().map(|tag| (ETAG, tag.to_header()));
    let cache = info
        .headers
        .cache_control
        .iter()
        .map(|text| (CACHE_CONTROL, text.to_header()));
    let date = [(LAST_MODIFIED, info.last_modified.to_header())];
    answer.set_headers(tag.chain(cache).chain(date).collect());
    answer
}

/// Adds the time after which to try again, in seconds.
pub(crate) fn retry(error: S3Error, seconds: u64) -> S3Error {
    with_header(error, RETRY_AFTER, seconds.into())
}

/// Returns the name of a condition as S3 writes it.
pub(crate) fn condition(precondition: Precondition) -> &'static str {
    match precondition {
        Precondition::IfMatch | Precondition::UnreadableIfMatch | Precondition::WeakIfMatch => {
            "If-Match"
        }
        Precondition::IfNoneMatch | Precondition::UnreadableIfNoneMatch => "If-None-Match",
        Precondition::IfModifiedSince => "If-Modified-Since",
        Precondition::IfUnmodifiedSince => "If-Unmodified-Since",
    }
}

/// Adds the name of the condition that is false, which the [answer](crate::answer) tells in its document.
pub(crate) fn with_condition(error: S3Error, name: &str) -> S3Error {
    match HeaderValue::from_str(name) {
        Ok(name) => with_header(error, CONDITION, name),
        Err(_) => error,
    }
}

/// Adds a header field to the response.
pub(crate) fn with_header(mut error: S3Error, name: HeaderName, value: HeaderValue) -> S3Error {
    let xml = HeaderValue::from_static("application/xml");
    error.set_headers(HeaderMap::from_iter([(CONTENT_TYPE, xml), (name, value)]));
    error
}
