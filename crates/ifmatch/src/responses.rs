//! The responses that the layer makes itself.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, ETAG, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body::Body;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::problem::Problem;

use crate::body::ResponseBody;
use crate::events::Decision;

/// `Retry-After` of a failure of unknown duration.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Header fields about a content that is replaced.
pub(crate) const OF_CONTENT: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("repr-digest"),
];

/// Name of a 412 without a lease.
const PRECONDITION_FAILED: &str = "precondition-failed";

pub(crate) fn problem<T: Body>(problem: &Problem) -> Response<ResponseBody<T>> {
    marked(problem).map(ResponseBody::buffered)
}

/// Creates the response to a problem, with the decision and the problem among its extensions.
fn marked(problem: &Problem) -> Response<Bytes> {
    let mut response = problem.to_response();
    response
        .extensions_mut()
        .insert(Decision::new(problem.status(), problem.name()));
    response.extensions_mut().insert(problem.clone());
    response
}

/// 412, for a handler that finds another version in its store than the [expected](crate::ExpectedVersion) one. Nothing
/// was written.
///
/// With the feature `axum`, it is a response. Behind the layer, it also carries the current tag and the reason, which
/// the layer learns from a GET to the inner service, unless that is [turned off](crate::Builder::get_after_writes).
///
/// ```
/// use bytes::Bytes;
/// use ifmatch::PreconditionFailed;
///
/// let response: http::Response<Bytes> = PreconditionFailed.into();
/// assert_eq!(response.status(), 412);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreconditionFailed;

impl<T: From<Bytes>> From<PreconditionFailed> for Response<T> {
    fn from(_: PreconditionFailed) -> Self {
        let problem = Problem::new(StatusCode::PRECONDITION_FAILED, PRECONDITION_FAILED).detail(
            "the resource isn't in the version that the request names. Fetch it, and if it exists, merge and retry",
        );
        marked(&problem).map(T::from)
    }
}

/// Returns `true` for a [`PreconditionFailed`] of a handler, which doesn't say what is false.
pub(crate) fn lacks_reason<T>(response: &Response<T>) -> bool {
    let is_own = response
        .extensions()
        .get()
        .is_some_and(|decision: &Decision| decision.reason() == PRECONDITION_FAILED);
    is_own && !response.headers().contains_key(ETAG)
}

/// Returns the response to a problem in place of another one, with that one's other header fields.
pub(crate) fn replaced<T: Body>(
    response: &Response<T>,
    with: &Problem,
) -> Response<ResponseBody<T>> {
    let mut made = problem(with);
    let mut headers = response.headers().clone();
    for name in OF_CONTENT {
        headers.remove(name);
    }
    headers.remove(CONTENT_LENGTH);
    headers.extend(std::mem::take(made.headers_mut()));
    *made.headers_mut() = headers;
    made
}

/// 400: the key extractor rejects the request.
pub(crate) fn invalid_key() -> Problem {
    Problem::bad_request("the request does not name a valid resource")
}

/// 503: the register or the probe failed. Nothing was changed.
pub(crate) fn unavailable<T: Body>() -> Response<ResponseBody<T>> {
    problem(&Problem::unavailable(RETRY_AFTER))
}

/// 501: the register may forget a lease before it ends.
pub(crate) fn leases_not_kept<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "leases are disabled because the register may lose them: configure a register that keeps every swap, or \
                  accept the loss with Builder::ephemeral_leases";
    problem(
        &Problem::new(StatusCode::NOT_IMPLEMENTED, "leases-not-kept")
            .detail(detail)
            .code("NotImplemented"),
    )
}

/// 503: the write or lease operation may have taken effect.
pub(crate) fn outcome_unknown<T: Body>() -> Response<ResponseBody<T>> {
    let detail =
        "the request may have taken effect: fetch the current state before sending it again";
    problem(&Problem::new(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown").detail(detail))
}

/// 500: the handler panicked. The write may have taken effect.
pub(crate) fn handler_failed<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "the handler failed, and the request may have taken effect in part: fetch the current state before \
                  sending it again";
    problem(&Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "handler-failed").detail(detail))
}

/// 500: the handler has written without comparing the version.
pub(crate) fn version_unchecked<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "the handler has written without the version that it should compare: take ifmatch::ExpectedVersion, or don't \
                  set Builder::handlers_check_versions";
    problem(&Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "version-unchecked").detail(detail))
}

/// 304 in place of a 200 with these header fields.
pub(crate) fn not_modified<T: Body>(mut headers: HeaderMap) -> Response<ResponseBody<T>> {
    retain_304_headers(&mut headers);
    not_modified_with(headers)
}

/// 304 with exactly these header fields.
pub(crate) fn not_modified_with<T: Body>(headers: HeaderMap) -> Response<ResponseBody<T>> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    response
}

/// Turns a response to GET into the response to HEAD.
pub(crate) fn without_body<T: Body>(
    response: Response<ResponseBody<T>>,
) -> Response<ResponseBody<T>> {
    let (mut head, body) = response.into_parts();
    let has_length =
        head.status != StatusCode::NOT_MODIFIED && head.status != StatusCode::NO_CONTENT;
    if let Some(len) = body
        .size_hint()
        .exact()
        .filter(|_| has_length && !head.headers.contains_key(CONTENT_LENGTH))
    {
        head.headers.insert(CONTENT_LENGTH, len.into());
    }
    Response::from_parts(head, ResponseBody::empty())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    /// A cache in front of the layer relies on this.
    #[test]
    fn a_problem_tells_if_it_leaves_doubt() {
        for (response, expected) in [
            (outcome_unknown::<Full<Bytes>>(), true),
            (handler_failed(), true),
            (version_unchecked(), true),
            (unavailable(), false),
        ] {
            let problem: Option<&Problem> = response.extensions().get();
            assert!(problem.is_some_and(|problem| problem.leaves_doubt() == expected));
        }
    }
}
