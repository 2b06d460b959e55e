//! The meaning of an HTTP response: done, in conflict, unknown or refused.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ETAG, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::version::Version;

/// The field of Azure and of the gateway that tells errors of one status apart.
const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");
/// The code of a write with a smaller fencing token than another one.
const SUPERSEDED: &[u8] = b"LeaseTokenSuperseded";
/// The code of a write to a container that doesn't exist.
const NO_CONTAINER: &[u8] = b"ContainerNotFound";

/// Returns the error that a response other than success stands for.
pub(super) fn failure(response: &Response<Bytes>) -> Error {
    let status = response.status();
    let detail = serde_json::from_slice::<Value>(response.body()).ok();
    let detail = detail
        .as_ref()
        .and_then(|problem| problem["detail"].as_str());
    let code = || error_code(response.headers()).and_then(|code| std::str::from_utf8(code).ok());
    let detail = detail.or_else(code).unwrap_or_default();
    let message = if detail.is_empty() {
        format!("the server responded {status}")
    } else {
        format!("{status}: {detail}")
    };
    let delay = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|delay| delay.to_str().ok()?.parse().ok());
    Error::new(kind(response), message).with_retry_after(delay.map(Duration::from_secs))
}

/// Returns `true` for a change that has taken effect. 202 only announces one (RFC 9110 §15.3.3).
pub(super) fn is_done(status: StatusCode) -> bool {
    status.is_success() && status != StatusCode::ACCEPTED
}

fn kind(response: &Response<Bytes>) -> ErrorKind {
    let conflict = || ErrorKind::Conflict {
        current: strong_tag(response.headers()),
    };
    match response.status() {
        StatusCode::PRECONDITION_FAILED if lease_error(response.headers()) == Some(SUPERSEDED) => {
            ErrorKind::Lost
        }
        // A lease of another client, which reading again wouldn't change.
        StatusCode::PRECONDITION_FAILED if lease_error(response.headers()).is_some() => {
            ErrorKind::Refused
        }
        // Reading again wouldn't change that there is no container.
        StatusCode::NOT_FOUND if error_code(response.headers()) == Some(NO_CONTAINER) => {
            ErrorKind::Refused
        }
        // Also: 409 of a store with concurrent writers, and 404 of one that was told to replace an absent key.
        StatusCode::PRECONDITION_FAILED
        | StatusCode::CONFLICT
        | StatusCode::NOT_FOUND
        | StatusCode::GONE => conflict(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            ErrorKind::Unknown
        }
        StatusCode::NOT_IMPLEMENTED | StatusCode::INSUFFICIENT_STORAGE => ErrorKind::Refused,
        status if status.is_server_error() => ErrorKind::Unknown,
        // A success that is none of the expected ones says nothing about the outcome.
        status if status.is_success() => ErrorKind::Unknown,
        _ => ErrorKind::Refused,
    }
}

/// Returns the code of an error about a lease.
fn lease_error(headers: &HeaderMap) -> Option<&[u8]> {
    error_code(headers).filter(|code| code.starts_with(b"Lease"))
}

fn error_code(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(ERROR_CODE).map(HeaderValue::as_bytes)
}

/// Returns the tag of a response, unless it is weak or malformed.
pub(super) fn strong_tag(headers: &HeaderMap) -> Option<Version> {
    let tag = EntityTag::from_header(headers.get(ETAG)?)
        .ok()
        .filter(|tag| !tag.is_weak())?;
    std::str::from_utf8(tag.as_bytes()).ok().map(Version::new)
}

/// Returns the date of the content. `Date` may come from another clock, such as a gateway's in front of a store.
pub(super) fn modified(headers: &HeaderMap) -> Option<SystemTime> {
    let seconds = HttpDate::from_headers(headers, LAST_MODIFIED)?.unix();
    u64::try_from(seconds)
        .ok()
        .map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &[(&'static str, &'static str)]) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response
                .headers_mut()
                .append(*name, HeaderValue::from_static(value));
        }
        response
    }

    #[test]
    fn errors_tell_conflicts_unknown_outcomes_and_refusals_apart() {
        for status in [412, 409, 404, 410] {
            assert_eq!(
                kind(&answer(status, &[])),
                ErrorKind::Conflict { current: None },
                "{status}"
            );
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 202, 299] {
            assert_eq!(kind(&answer(status, &[])), ErrorKind::Unknown, "{status}");
        }
        for status in [301, 400, 401, 403, 405, 413, 428, 501, 507] {
            assert_eq!(kind(&answer(status, &[])), ErrorKind::Refused, "{status}");
        }
        assert!(
            is_done(StatusCode::CREATED)
                && is_done(StatusCode::NO_CONTENT)
                && !is_done(StatusCode::ACCEPTED)
        );
        let lease = answer(412, &[("x-ms-error-code", "LeaseIdMissing")]);
        assert_eq!(kind(&lease), ErrorKind::Refused);
        assert_eq!(
            kind(&answer(412, &[("x-ms-error-code", "LeaseTokenSuperseded")])),
            ErrorKind::Lost
        );
        assert_eq!(
            kind(&answer(404, &[("x-ms-error-code", "ContainerNotFound")])),
            ErrorKind::Refused
        );
        let told = answer(412, &[("etag", "\"v2\"")]);
        assert_eq!(
            kind(&told),
            ErrorKind::Conflict {
                current: Some(Version::new("\"v2\""))
            }
        );
    }

    #[test]
    fn a_weak_or_malformed_tag_is_no_version() {
        for tag in ["W/\"v1\"", "v1", "\"a\" \"b\""] {
            assert_eq!(
                strong_tag(answer(200, &[("etag", tag)]).headers()),
                None,
                "{tag}"
            );
        }
        assert_eq!(
            strong_tag(answer(200, &[("etag", "\"v1\"")]).headers()),
            Some(Version::new("\"v1\""))
        );
    }
}
