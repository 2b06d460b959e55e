//! The cost of a 304 from memory, the most frequent response of a service behind the layer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Ready, ready};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use ifmatch::{ConditionalLayer, RequestBody};
use tower::{Layer, Service, service_fn};

#[test]
fn a_304_from_memory_makes_at_most_10_allocations_more_than_the_bare_service() {
    let mut layered = ConditionalLayer::builder()
        .authoritative()
        .build()
        .layer(service_fn(bare::<RequestBody<_>>));
    let mut bare = service_fn(bare::<Empty<Bytes>>);
    let whole = layered.call(request(None)).now_or_never().unwrap().unwrap();
    let tag = whole.headers()[ETAG].clone();
    drop(whole.into_body().collect().now_or_never().unwrap().unwrap());
    // Warm up the cache's own buffers.
    for _ in 0..1_000 {
        let request = request(Some(&tag));
        assert_eq!(
            layered
                .call(request)
                .now_or_never()
                .unwrap()
                .unwrap()
                .status(),
            304
        );
    }
    let request = |tag| Some(request(tag));
    let mut prepared = request(None);
    let without = measure(|| drop(bare.call(prepared.take().unwrap()).now_or_never().unwrap()));
    let mut prepared = request(Some(&tag));
    let with = measure(|| {
        drop(
            layered
                .call(prepared.take().unwrap())
                .now_or_never()
                .unwrap(),
        );
    });
    let more = with.count_total.saturating_sub(without.count_total);
    assert!(more <= 10, "{more} allocations more than the bare service");
}

fn bare<B>(_: Request<B>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    let mut response = Response::new(Full::from("hello"));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    ready(Ok(response))
}

fn request(tag: Option<&HeaderValue>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = "/documents/7".parse().unwrap();
    request
        .headers_mut()
        .insert("accept-encoding", HeaderValue::from_static("gzip"));
    if let Some(tag) = tag {
        request.headers_mut().insert(IF_NONE_MATCH, tag.clone());
    }
    request
}
