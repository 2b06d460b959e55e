//! What is answered before the service is asked: the Worker's own endpoints, and refusals.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ifmatch_azure::is_signed;
use ifmatch_blob::access::Access;
use ifmatch_blob::body::BlobBody;
use ifmatch_core::problem::Problem;

use super::settings::Serves;

/// Who gets in.
pub(crate) struct Front {
    access: Access,
    serves: Serves,
}

/// Where the state of the Worker is told, to everybody.
const HEALTH: &str = "/-/health";

impl Front {
    /// Lets in whom `access` does.
    pub(crate) fn new(access: Access, serves: Serves) -> Self {
        Self { access, serves }
    }

    /// The answer to a request that is not for the service, if this is one.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Option<Response<BlobBody>> {
        if is_own(request.uri().path()) {
            return Some(own(request.method(), request.uri().path()));
        }
        // Whoever signs is let in or not by the service. All that is said to tables is signed.
        let is_checked = self.serves == Serves::Tables || is_signed(request.headers());
        if is_checked {
            return None;
        }
        let denied = self.access.check(request.method(), request.headers()).err()?;
        Some(sent(denied.to_problem().to_response()))
    }
}

/// What the Worker says as long as a binding or a setting is missing: why, on `/-/health` and in the log alone.
pub(crate) fn unusable(path: &str, why: &str) -> Response<BlobBody> {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-set-up");
    let detail = match path {
        HEALTH => why,
        _ => "this Worker is not set up: its log and /-/health say what is missing",
    };
    sent(problem.detail(detail).to_response())
}

/// Error detail for requests refused because other bodies fill the memory.
pub(crate) fn busy() -> Response<BlobBody> {
    let problem = Problem::unavailable(Duration::from_secs(1));
    sent(problem.detail("other requests fill this Worker's memory at the moment, try again later").to_response())
}

/// What the runtime lets through and HTTP does not.
pub(crate) fn malformed(error: &worker::Error) -> Response<BlobBody> {
    sent(Problem::bad_request(format!("the request cannot be read: {error}")).to_response())
}

/// Whether a path is one of the Worker's own, rather than a container's.
fn is_own(path: &str) -> bool {
    path.strip_prefix("/-").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn own(method: &Method, path: &str) -> Response<BlobBody> {
    let problem = match path {
        HEALTH if matches!(*method, Method::GET | Method::HEAD) => return healthy(),
        HEALTH => Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
            .detail("this endpoint can only be read")
            .header(header::ALLOW, HeaderValue::from_static("GET, HEAD")),
        _ => Problem::not_found().detail("the Worker's own endpoint is /-/health"),
    };
    sent(problem.to_response())
}

fn healthy() -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::from(r#"{"status":"ok"}"#));
    let fields = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    response.headers_mut().extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn sent(response: Response<Bytes>) -> Response<BlobBody> {
    response.map(BlobBody::from)
}
