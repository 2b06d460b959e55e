//! The plain dialect: HTTP as specified by RFC 9110, and JSON.

use std::sync::Arc;

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use ifmatch_core::problem::Problem;

use crate::body::BlobBody;
use crate::dialect::Context;
use crate::name::{BlobPath, ContainerName, InvalidName, NameErrorKind};
use crate::store::Upload;
use crate::waits;

mod fields;
mod lease;
mod list;
mod problem;
mod read;
mod write;

/// Answers a read immediately if the store can.
pub(crate) fn answer_at_once(shared: &Context, head: &Parts) -> Option<Response<BlobBody>> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return None;
    }
    if lease::is_named(head) || waits::may_wait(&head.headers) {
        return None;
    }
    let Ok(PlainTarget::Blob(blob)) = PlainTarget::parse(head.uri.path()) else {
        return None;
    };
    read::at_once(shared, head, &blob).map(|answer| respond(head, answer))
}

/// Answers a request. Takes the body only in order to store it.
pub(crate) async fn answer(
    shared: Arc<Context>,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Response<BlobBody> {
    let answer = route(&shared, &head, upload).await;
    respond(&head, answer)
}

fn respond(head: &Parts, answer: Result<Response<BlobBody>, Problem>) -> Response<BlobBody> {
    match answer {
        Ok(response) => response,
        Err(problem) if head.method == Method::HEAD => {
            problem.to_response().map(|_| BlobBody::empty())
        }
        Err(problem) => problem.to_response().map(BlobBody::from),
    }
}

async fn route(
    shared: &Context,
    head: &Parts,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, Problem> {
    let target = PlainTarget::parse(head.uri.path())?;
    match (&target, &head.method) {
        (PlainTarget::Blob(blob), &Method::GET | &Method::HEAD) if lease::is_named(head) => {
            waits::read(shared, head, || lease::get(shared, head, blob)).await
        }
        (PlainTarget::Blob(blob), &Method::POST | &Method::PUT | &Method::DELETE)
            if lease::is_named(head) =>
        {
            lease::operate(shared, head, blob).await
        }
        (PlainTarget::Blob(blob), &Method::GET | &Method::HEAD) => {
            waits::read(shared, head, || read::read(shared, head, blob)).await
        }
        (PlainTarget::Blob(blob), &Method::PUT) => write::put(shared, head, blob, upload).await,
        (PlainTarget::Blob(blob), &Method::DELETE) => write::delete(shared, head, blob).await,
        (PlainTarget::Container(container), &Method::GET | &Method::HEAD) => {
            list::blobs(shared, head, container).await
        }
        (PlainTarget::Root, &Method::GET | &Method::HEAD) => list::containers(shared, head).await,
        (_, &Method::OPTIONS) => Ok(options(allowed(&target, head))),
        _ => Err(method_not_allowed(&target, allowed(&target, head))),
    }
}

fn allowed(target: &PlainTarget, head: &Parts) -> HeaderValue {
    HeaderValue::from_static(match target {
        PlainTarget::Blob(_) if lease::is_named(head) => "GET, HEAD, POST, PUT, DELETE, OPTIONS",
        PlainTarget::Blob(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        PlainTarget::Container(_) | PlainTarget::Root => "GET, HEAD, OPTIONS",
    })
}

fn options(allow: HeaderValue) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, allow);
    response
}

/// Says what is possible instead of a method.
fn method_not_allowed(target: &PlainTarget, allow: HeaderValue) -> Problem {
    let detail = match target {
        PlainTarget::Root => "GET / lists containers. PUT /CONTAINER/NAME stores a blob".to_owned(),
        PlainTarget::Container(container) => {
            format!("GET /{container} lists blobs. PUT /{container}/NAME stores a blob")
        }
        PlainTarget::Blob(_) => "use GET, HEAD, PUT or DELETE. Leases are at ?lease".to_owned(),
    };
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
        .detail(detail)
        .header(ALLOW, allow)
}

/// The target that the path of a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlainTarget {
    /// All containers: `/`, and `*` or an empty path in requests about the server.
    Root,
    /// `/{container}`, with or without a trailing slash.
    Container(ContainerName),
    /// `/{container}/{blob…}`
    Blob(BlobPath),
}

impl PlainTarget {
    /// Parses a raw path.
    pub(super) fn parse(path: &str) -> Result<Self, Problem> {
        let inner = path.strip_prefix('/').unwrap_or(path);
        // A container's name is short, so this is faster than a search optimised for long texts.
        let cut = inner.bytes().position(|byte| byte == b'/');
        match cut.map(|at| (&inner[..at], &inner[at + 1..])) {
            None if matches!(inner, "" | "*") => Ok(Self::Root),
            None => ContainerName::new(inner)
                .map(Self::Container)
                .map_err(invalid),
            Some((container, "")) => ContainerName::new(container)
                .map(Self::Container)
                .map_err(invalid),
            Some((container, name)) => BlobPath::of_encoded(container, name)
                .map(Self::Blob)
                .map_err(invalid),
        }
    }
}

fn invalid(error: InvalidName) -> Problem {
    let status = match error.kind() {
        NameErrorKind::BlobTooLong | NameErrorKind::ContainerTooLong => StatusCode::URI_TOO_LONG,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, "invalid-name").detail(error.to_string())
}
