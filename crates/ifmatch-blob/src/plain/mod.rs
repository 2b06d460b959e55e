//! The plain dialect: HTTP as specified by RFC 9110, and JSON.

use std::sync::Arc;

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use ifmatch_core::problem::Problem;

use crate::body::BlobBody;
use crate::dialect::Context;
use crate::store::Upload;
use target::Target;

mod digest;
mod fields;
mod list;
mod problem;
mod ranges;
mod read;
mod request_key;
mod target;
mod write;

/// Answers a read immediately if the store can.
pub(crate) fn answer_at_once(shared: &Context, head: &Parts) -> Option<Response<BlobBody>> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return None;
    }
    let Ok(Target::Blob(blob)) = Target::parse(head.uri.path()) else { return None };
    read::at_once(shared, head, &blob).map(|answer| respond(head, answer))
}

/// Answers a request. Takes the body only in order to store it.
pub(crate) async fn answer(shared: Arc<Context>, head: Parts, upload: impl FnOnce() -> Upload) -> Response<BlobBody> {
    let answer = route(&shared, &head, upload).await;
    respond(&head, answer)
}

fn respond(head: &Parts, answer: Result<Response<BlobBody>, Problem>) -> Response<BlobBody> {
    match answer {
        Ok(response) => response,
        Err(problem) if head.method == Method::HEAD => problem.to_response().map(|_| BlobBody::empty()),
        Err(problem) => problem.to_response().map(BlobBody::from),
    }
}

async fn route(shared: &Context, head: &Parts, upload: impl FnOnce() -> Upload) -> Result<Response<BlobBody>, Problem> {
    let target = Target::parse(head.uri.path())?;
    match (&target, &head.method) {
        (Target::Blob(blob), &Method::GET | &Method::HEAD) => read::read(shared, head, blob).await,
        (Target::Blob(blob), &Method::PUT) => write::put(shared, head, blob, upload).await,
        (Target::Blob(blob), &Method::DELETE) => write::delete(shared, head, blob).await,
        (Target::Container(container), &Method::GET | &Method::HEAD) => list::blobs(shared, head, container).await,
        (Target::Root, &Method::GET | &Method::HEAD) => list::containers(shared, head).await,
        (_, &Method::OPTIONS) => Ok(options(&target)),
        _ => Err(method_not_allowed(&target)),
    }
}

fn allowed(target: &Target) -> HeaderValue {
    HeaderValue::from_static(match target {
        Target::Blob(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        Target::Container(_) | Target::Root => "GET, HEAD, OPTIONS",
    })
}

fn options(target: &Target) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, allowed(target));
    response
}

fn method_not_allowed(target: &Target) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
        .detail("the method is not allowed here: see Allow")
        .header(ALLOW, allowed(target))
}
