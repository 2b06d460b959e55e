//! The responses that this layer makes itself.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, ETAG, LAST_MODIFIED};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::problem::Problem;

use crate::body::ResponseBody;

/// When to try again after a failure whose end nobody knows.
pub(crate) const LATER: Duration = Duration::from_secs(1);

pub(crate) fn problem<T: Body>(problem: &Problem) -> Response<ResponseBody<T>> {
    problem.to_response().map(ResponseBody::read)
}

/// 400: there can be no such resource.
pub(crate) fn no_such_key<T: Body>() -> Response<ResponseBody<T>> {
    problem(&Problem::bad_request("there can be no resource of this name"))
}

/// 503: the register failed, or the resource could not be asked. Nothing was changed.
pub(crate) fn unavailable<T: Body>() -> Response<ResponseBody<T>> {
    problem(&Problem::unavailable(LATER))
}

/// 501: the register may forget the lease while its holder relies on it.
pub(crate) fn leases_not_kept<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "leases are not kept here, since the register forgets them when the process ends: give the layer a register \
                  that lasts, or accept the loss with Builder::ephemeral_leases";
    problem(&Problem::new(StatusCode::NOT_IMPLEMENTED, "leases-not-kept").detail(detail).code("NotImplemented"))
}

/// 503: the write or lease operation may have taken effect.
pub(crate) fn interrupted<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "it is not known whether the request took effect: fetch the current state before sending it again";
    problem(&Problem::new(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown").detail(detail))
}

/// 500: the handler panicked. The write may have taken effect.
pub(crate) fn panicked<T: Body>() -> Response<ResponseBody<T>> {
    let detail = "the handler failed, perhaps half way: fetch the current state before sending the request again";
    problem(&Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "handler-failed").detail(detail))
}

/// 304 in the place of a 200 with these header fields.
pub(crate) fn not_modified<T: Body>(mut headers: HeaderMap) -> Response<ResponseBody<T>> {
    retain_304_headers(&mut headers);
    bare(headers)
}

/// 304 with exactly these header fields.
pub(crate) fn bare<T: Body>(headers: HeaderMap) -> Response<ResponseBody<T>> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = headers;
    response
}

/// The same response as to GET, without the body.
pub(crate) fn without_body<T: Body>(response: Response<ResponseBody<T>>) -> Response<ResponseBody<T>> {
    let (mut head, body) = response.into_parts();
    let sent = head.status != StatusCode::NOT_MODIFIED && head.status != StatusCode::NO_CONTENT;
    if let Some(len) = body.size_hint().exact().filter(|_| sent && !head.headers.contains_key(CONTENT_LENGTH)) {
        head.headers.insert(CONTENT_LENGTH, len.into());
    }
    Response::from_parts(head, ResponseBody::empty())
}

/// Takes the validators out of a response, where they would promise more than is known.
pub(crate) fn strip_validators(headers: &mut HeaderMap) {
    headers.remove(ETAG);
    headers.remove(LAST_MODIFIED);
}
