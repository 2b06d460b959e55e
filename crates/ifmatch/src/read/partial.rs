//! Parts that the inner service has cut itself.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::precondition::{Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::{Representation, if_range};

use crate::read::request::Asked;
use crate::read::tag::{is_coded, own_tag};

/// What becomes of a response to a request with `Range`.
pub(crate) enum Partial {
    /// It is no part.
    None,
    /// It is what the client asked for.
    Pass,
    /// The conditions say otherwise.
    Answer(Response<Bytes>),
    /// The conditions cannot be evaluated on it: the whole is needed.
    Unclear,
}

/// Judges a part by its own tag, if it has one that stands for these bytes only. Conditions come before 416.
pub(crate) fn judge<T>(asked: &Asked, response: &Response<T>) -> Partial {
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::RANGE_NOT_SATISFIABLE if asked.is_conditional() => return Partial::Unclear,
        _ => return Partial::None,
    }
    if !asked.is_conditional() {
        return Partial::Pass;
    }
    let own = own_tag(response.headers()).filter(|_| !is_coded(response.headers()));
    let Some(tag) = own else { return Partial::Unclear };
    let dated = asked.conditions.if_unmodified_since.is_some() || asked.conditions.if_modified_since.is_some();
    if dated {
        return Partial::Unclear;
    }
    let validators = Validators { tags: std::slice::from_ref(&tag), last_modified: None };
    match asked.conditions.evaluate(&Method::GET, Some(&validators)) {
        Verdict::NotModified => {
            let mut answer = Response::new(Bytes::new());
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            answer.headers_mut().clone_from(response.headers());
            retain_304_headers(answer.headers_mut());
            Partial::Answer(answer)
        }
        Verdict::Failed(condition) => {
            Partial::Answer(Problem::precondition_failed(condition, Some(&tag)).to_response())
        }
        Verdict::Proceed => {
            let sent = Representation { tag: Some(&tag), last_modified: None, len: 0 };
            match if_range(&asked.headers, &sent, Timestamp::default()) {
                Some(false) => Partial::Unclear,
                Some(true) | None => Partial::Pass,
            }
        }
    }
}
