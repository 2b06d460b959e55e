//! A layer around a service with many resources, and the measured requests.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, ConditionalService, RequestBody};
use ifmatch_register::Register;
use tower::{Layer, Service};

/// Number of requests prepared in advance, outside the measured time.
const BATCH: usize = 4_096;
/// Number of concurrent writes. A durable register commits them in groups.
const IN_FLIGHT: usize = 256;
/// Step between resources. It visits all of them, far apart, before it repeats.
const STRIDE: usize = 7_919;
/// A tag as long as a hash.
const TAG: &str = "\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"";
/// More than the responses of a million resources need.
const MEMORY: u64 = 8 << 30;

type Body = Full<Bytes>;

/// A layer around a service with a number of resources.
pub(crate) struct Subject {
    service: ConditionalService<Resources>,
    size: usize,
    next: usize,
}

impl Subject {
    pub(crate) fn new(size: usize, register: impl Register) -> Self {
        let layer = ConditionalLayer::builder()
            .register(register)
            .authoritative()
            .cache_capacity(MEMORY)
            .build();
        Self {
            service: layer.layer(Resources),
            size,
            next: 0,
        }
    }

    /// Creates each resource through the layer.
    pub(crate) async fn create_all(&mut self) {
        self.run(self.size, &Method::PUT, None, StatusCode::NO_CONTENT)
            .await;
    }

    /// Reads each resource, so its response is cached.
    pub(crate) async fn read_all(&mut self) {
        self.run(self.size, &Method::GET, None, StatusCode::OK)
            .await;
        self.run(
            self.size,
            &Method::GET,
            Some((IF_NONE_MATCH, TAG)),
            StatusCode::NOT_MODIFIED,
        )
        .await;
    }

    /// Measures a 304 from memory.
    pub(crate) async fn revalidate(&mut self, count: usize) -> Duration {
        // A write evicts the cached response.
        let (start, warm) = (self.next, self.size.min(count));
        self.run(warm, &Method::GET, None, StatusCode::OK).await;
        self.next = start;
        self.run(
            count,
            &Method::GET,
            Some((IF_NONE_MATCH, TAG)),
            StatusCode::NOT_MODIFIED,
        )
        .await
    }

    /// Measures a write with the current version as its condition.
    pub(crate) async fn update(&mut self, count: usize) -> Duration {
        self.run(
            count,
            &Method::PUT,
            Some((IF_MATCH, TAG)),
            StatusCode::NO_CONTENT,
        )
        .await
    }

    /// Runs a number of requests, each for another resource, and returns the time per request.
    async fn run(
        &mut self,
        count: usize,
        method: &Method,
        condition: Option<(HeaderName, &'static str)>,
        expected: StatusCode,
    ) -> Duration {
        let width = if *method == Method::PUT { IN_FLIGHT } else { 1 };
        let mut taken = Duration::ZERO;
        for start in (0..count).step_by(BATCH) {
            let batch: Vec<Request<Body>> = (start..count.min(start + BATCH))
                .map(|_| self.request(method, condition.as_ref()))
                .collect();
            let service = &self.service;
            let answers = stream::iter(batch)
                .map(|request| service.clone().call(request))
                .buffer_unordered(width);
            let begin = Instant::now();
            let check = |answer: Result<Response<_>, Infallible>| {
                assert_eq!(answer.unwrap().status(), expected);
                ready(())
            };
            answers.for_each(check).await;
            taken += begin.elapsed();
        }
        taken / u32::try_from(count).unwrap()
    }

    fn request(
        &mut self,
        method: &Method,
        condition: Option<&(HeaderName, &'static str)>,
    ) -> Request<Body> {
        self.next = (self.next + STRIDE) % self.size;
        let mut request = Request::new(Body::default());
        *request.method_mut() = method.clone();
        *request.uri_mut() = format!("/customers/{}/profile", self.next).parse().unwrap();
        request.headers_mut().extend(
            condition.map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())),
        );
        request
    }
}

/// Resources with the same tag, so every condition holds.
#[derive(Clone, Debug)]
pub(crate) struct Resources;

impl Service<Request<RequestBody<Body>>> for Resources {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Body>>) -> Self::Future {
        let mut response = Response::new(Full::from("content"));
        if request.method() == Method::PUT {
            response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        // A value with its own allocation, as from a database.
        response
            .headers_mut()
            .insert(ETAG, HeaderValue::from_str(TAG).unwrap());
        ready(Ok(response))
    }
}
