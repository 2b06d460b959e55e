//! `/-/cache`: what is stored, and the way to remove it.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ifmatch_cache::{CacheHandle, Purge};
use ifmatch_core::problem::Problem;
use serde_json::json;
use url::form_urlencoded;

use crate::endpoints::json;

/// Where it is.
pub(crate) const ROOT: &str = "/-/cache";

/// Answers `GET /-/cache` with the counters, and `DELETE /-/cache?url=…`, `?prefix=…` or `?group=…&origin=…` by removing
/// what is stored.
pub(crate) fn answer<B>(cache: &CacheHandle, request: &Request<B>) -> Response<Bytes> {
    match *request.method() {
        Method::GET | Method::HEAD => counters(cache),
        Method::DELETE => match what(request.uri().query().unwrap_or_default()) {
            Some(what) => json(&json!({ "purged": cache.purge(&what) })),
            None => Problem::bad_request("say what to remove: ?url=…, ?prefix=… or ?group=…&origin=…").to_response(),
        },
        _ => Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
            .detail("the cache can be read and purged")
            .header(header::ALLOW, HeaderValue::from_static("GET, HEAD, DELETE"))
            .to_response(),
    }
}

fn counters(cache: &CacheHandle) -> Response<Bytes> {
    let metrics = cache.metrics();
    json(&json!({
        "hits": metrics.hits,
        "misses": metrics.misses,
        "stale": metrics.stale,
        "revalidated": metrics.revalidated,
        "coalesced": metrics.coalesced,
        "passed": metrics.passed,
        "stored": metrics.stored,
        "invalidated": metrics.invalidated,
        "evictions": metrics.evictions,
        "bytes": metrics.bytes,
        "stored_bytes": metrics.stored_bytes,
    }))
}

/// What a query asks to remove. An empty prefix is everything, and must be said.
fn what(query: &str) -> Option<Purge> {
    let mut fields: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    fields.sort();
    match &mut fields[..] {
        [(name, value)] if name == "url" => Some(Purge::Url(std::mem::take(value))),
        [(name, value)] if name == "prefix" => Some(Purge::Prefix(std::mem::take(value))),
        [(group, name), (origin, value)] if group == "group" && origin == "origin" => {
            Some(Purge::Group { origin: std::mem::take(value), name: std::mem::take(name) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_says_exactly_what_it_removes() {
        assert_eq!(what("url=http%3A%2F%2Fa%2Fb"), Some(Purge::Url("http://a/b".into())));
        assert_eq!(what("prefix="), Some(Purge::Prefix(String::new())));
        let group = Purge::Group { origin: "http://a".into(), name: "x".into() };
        assert_eq!(what("origin=http://a&group=x"), Some(group));
        for query in ["", "url", "url=a&prefix=b", "group=x", "all=1"] {
            assert_eq!(what(query).filter(|_| query != "url"), None, "{query}");
        }
    }
}
