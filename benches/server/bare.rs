//! The bare service: the least code that answers 200, and 304 to requests with its tag.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tower::{Service, service_fn};

use crate::inner::content;

/// Answers with these fields, each written `200 name: value` or `304 name: value`.
pub(crate) fn service(
    fields: &[String],
) -> impl Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let (ok, not_modified) = (parse(fields, "200 "), parse(fields, "304 "));
    service_fn(move |request: Request<Incoming>| {
        let known = request.headers().get(IF_NONE_MATCH);
        let mut response = Response::new(Full::default());
        if known.is_some() && known == ok.get(ETAG) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.headers_mut() = not_modified.clone();
        } else {
            *response.body_mut() = Full::new(content(request.uri().path()));
            *response.headers_mut() = ok.clone();
        }
        ready(Ok(response))
    })
}

fn parse(fields: &[String], status: &str) -> HeaderMap {
    let lines = fields
        .iter()
        .filter_map(|field| field.strip_prefix(status)?.split_once(": "));
    lines
        .map(|(name, value)| {
            (
                name.parse::<HeaderName>().unwrap(),
                value.parse::<HeaderValue>().unwrap(),
            )
        })
        .collect()
}
