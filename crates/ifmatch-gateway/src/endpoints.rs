//! The gateway's own endpoints, under `/-/`.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ifmatch_core::problem::Problem;

use crate::gateway::Desk;
use crate::leases::api;
use crate::proxy::{counters, purge};
use crate::request_body::RequestBody;

/// Whether a path is one of the gateway's own, rather than a container's.
pub(crate) fn is_own(path: &str) -> bool {
    path.strip_prefix("/-").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request to `/-/…`. Health is open to all; metrics, leases and the cache need a token if there are any; the
/// rest is 404.
pub(crate) async fn answer(desk: &Desk, request: Request<RequestBody>) -> Response<Bytes> {
    let path = request.uri().path();
    let about_leases = path == api::ROOT || path.strip_prefix(api::ROOT).is_some_and(|rest| rest.starts_with('/'));
    if let Some(blobs) = desk.blobs.as_ref().filter(|_| about_leases) {
        return match desk.access.check(request.method(), request.headers()) {
            Ok(()) => api::answer(blobs, request).await,
            Err(why) => why.to_problem().to_response(),
        };
    }
    if let Some(cache) = desk.cache.as_ref().filter(|_| path == purge::ROOT) {
        return match desk.access.check(request.method(), request.headers()) {
            Ok(()) => purge::answer(cache, &request),
            Err(why) => why.to_problem().to_response(),
        };
    }
    let answer = match path {
        "/-/health" => health,
        "/-/metrics" => metrics,
        _ => {
            let last = if desk.blobs.is_some() { api::ROOT } else { purge::ROOT };
            return Problem::not_found()
                .detail(format!("the gateway's own endpoints are /-/health, /-/metrics and {last}"))
                .to_response();
        }
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
            .detail("this endpoint can only be read")
            .header(header::ALLOW, HeaderValue::from_static("GET, HEAD"))
            .to_response();
    }
    answer(desk, &request)
}

/// A JSON answer that no cache keeps.
pub(crate) fn json(value: &serde_json::Value) -> Response<Bytes> {
    text(StatusCode::OK, "application/json", value.to_string().into())
}

fn health<B>(desk: &Desk, _: &Request<B>) -> Response<Bytes> {
    if desk.is_stopping() {
        text(StatusCode::SERVICE_UNAVAILABLE, "application/json", r#"{"status":"stopping"}"#.into())
    } else {
        text(StatusCode::OK, "application/json", r#"{"status":"ok"}"#.into())
    }
}

fn metrics<B>(desk: &Desk, request: &Request<B>) -> Response<Bytes> {
    match desk.access.check(request.method(), request.headers()) {
        Ok(()) => {
            if let Some(blobs) = &desk.blobs {
                blobs.look_through();
            }
            if let Some(cache) = &desk.cache {
                counters::enter(&cache.metrics());
            }
            text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", desk.metrics.render().into())
        }
        Err(why) => why.to_problem().to_response(),
    }
}

fn text(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::is_own;

    #[test]
    fn only_the_reserved_segment_is_ours() {
        for (path, own) in [
            ("/-", true),
            ("/-/", true),
            ("/-/x/y", true),
            ("/", false),
            ("/-x/y", false),
            ("/a/-/b", false),
            ("*", false),
        ] {
            assert_eq!(is_own(path), own, "{path}");
        }
    }
}
