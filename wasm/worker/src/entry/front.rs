//! Responses before the service: the Worker's own endpoints, and denied access.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use ifmatch_azure::is_signed;
use ifmatch_blob::access::Access;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::cors::Cors;
use ifmatch_blob::name::is_server_path;
use ifmatch_core::problem::Problem;

use super::settings::Serves;

/// Access control and own endpoints.
pub(crate) struct Front {
    access: Access,
    serves: Serves,
    cors: Option<Cors>,
}

/// Path of the public health endpoint.
const HEALTH: &str = "/-/health";

impl Front {
    /// Admits requests that `access` allows, and web pages that `cors` allows.
    pub(crate) fn new(access: Access, serves: Serves, cors: Option<Cors>) -> Self {
        Self {
            access,
            serves,
            cors: cors.filter(|_| serves == Serves::Blobs),
        }
    }

    /// Returns the header fields for web pages that the response to a request needs in addition.
    pub(crate) fn cross_origin<B>(&self, request: &Request<B>) -> HeaderMap {
        self.cors
            .as_ref()
            .map(|cors| cors.fields(request))
            .unwrap_or_default()
    }

    /// Returns the response to a request that doesn't reach the service, or `None` for one that does.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Option<Response<BlobBody>> {
        if is_server_path(request.uri().path()) {
            return Some(own(request.method(), request.uri().path()));
        }
        if let Some(preflight) = self.cors.as_ref().and_then(|cors| cors.preflight(request)) {
            return Some(sent(preflight));
        }
        // The service checks signatures. Every request to tables must be signed.
        let is_checked =
            self.serves == Serves::Tables || is_signed(request.uri(), request.headers());
        if is_checked {
            return None;
        }
        let denied = self
            .access
            .check(request.method(), request.headers())
            .err()?;
        Some(sent(denied.to_problem().to_response()))
    }
}

/// Response of a Worker with a missing binding or setting. Only `/-/health` and the log give the reason.
pub(crate) fn unusable(path: &str, why: &str) -> Response<BlobBody> {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-set-up");
    let detail = match path {
        HEALTH => why,
        _ => "this Worker is not set up: its log and /-/health name the missing settings",
    };
    sent(problem.detail(detail).to_response())
}

/// Response to a request when other bodies fill the memory.
pub(crate) fn busy() -> Response<BlobBody> {
    let problem = Problem::unavailable(Duration::from_secs(1));
    sent(
        problem
            .detail("this Worker's memory is full: try again later")
            .to_response(),
    )
}

/// Response to a request that isn't valid in HTTP.
pub(crate) fn malformed(error: &worker::Error) -> Response<BlobBody> {
    sent(Problem::bad_request(format!("the request cannot be read: {error}")).to_response())
}

fn own(method: &Method, path: &str) -> Response<BlobBody> {
    let problem = match path {
        HEALTH if matches!(*method, Method::GET | Method::HEAD) => return healthy(),
        HEALTH => Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
            .detail("this endpoint is read-only")
            .header(header::ALLOW, HeaderValue::from_static("GET, HEAD")),
        _ => Problem::not_found().detail("the Worker's own endpoint is /-/health"),
    };
    sent(problem.to_response())
}

fn healthy() -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::from(r#"{"status":"ok"}"#));
    let fields = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    response
        .headers_mut()
        .extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn sent(response: Response<Bytes>) -> Response<BlobBody> {
    response.map(BlobBody::from)
}
