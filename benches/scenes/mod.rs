//! Shared by several benchmarks: a trivial service, bare and behind the layer, and requests for it.
#![allow(
    dead_code,
    reason = "each program that includes this file uses a part of it"
)]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, ConditionalService};
use tower::{Layer, Service};

/// Body of requests and responses.
pub(crate) type Body = Full<Bytes>;

/// A request.
pub(crate) type Request = http::Request<Body>;

/// Answers every request with the same bytes from memory.
#[derive(Clone, Debug)]
pub(crate) struct Bare(Bytes);

/// The service behind the layer, with an authoritative register in memory.
pub(crate) type Layered = ConditionalService<Bare>;

impl Bare {
    /// Returns a service with responses of a given length.
    pub(crate) fn of(len: usize) -> Self {
        Self(Bytes::from(vec![b'x'; len]))
    }

    /// Returns the service behind the layer.
    pub(crate) fn layered(self) -> Layered {
        ConditionalLayer::builder()
            .authoritative()
            .build()
            .layer(self)
    }
}

impl<B> Service<http::Request<B>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<B>) -> Self::Future {
        let mut response = Response::new(Full::new(self.0.clone()));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        ready(Ok(response))
    }
}

/// Returns a request of a client with the version `tag`.
pub(crate) fn get(tag: Option<&HeaderValue>) -> Request {
    let mut request = http::Request::get("/notes/today")
        .body(Body::default())
        .unwrap();
    request
        .headers_mut()
        .extend(tag.map(|tag| (IF_NONE_MATCH, tag.clone())));
    request
}

/// Returns the response of a service that answers without waiting.
pub(crate) fn answer<S, T>(service: &mut S, request: Request) -> Response<T>
where
    S: Service<Request, Response = Response<T>, Error = Infallible>,
{
    let Ok(response) = service.call(request).now_or_never().unwrap();
    response
}

/// Returns the tag of the service's response, which is then in the register and in memory.
pub(crate) fn warm(service: &mut Layered) -> HeaderValue {
    let tag = answer(service, get(None)).headers()[ETAG].clone();
    for _ in 0..100 {
        assert_eq!(
            answer(service, get(Some(&tag))).status(),
            StatusCode::NOT_MODIFIED
        );
    }
    tag
}
