//! The service of the proxy: the cache before the upstreams, and an answer even where there is none.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use ifmatch_proxy::{Proxy, ProxyError, ProxyErrorKind};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::acquainted::{Introduce, Visitor};
use crate::request_body::{RequestBody, too_large};
use crate::response_body::BoxError;

/// A service that forwards, and turns its failures into answers.
#[derive(Clone, Debug)]
pub(super) struct Front<S> {
    inner: S,
    proxy: Proxy,
    max_body: u64,
}

impl<S> Front<S> {
    /// Puts itself in front of `inner`, which gets no bodies longer than `max_body` bytes, and no requests that `proxy`, far
    /// behind it, has forwarded before.
    pub(super) fn new(inner: S, proxy: Proxy, max_body: u64) -> Self {
        Self { inner, proxy, max_body }
    }
}

impl<S: Introduce> Introduce for Front<S> {
    fn introduce(&mut self, visitor: Visitor) {
        self.inner.introduce(visitor);
    }
}

/// What the inner service says, or the proxy itself.
type Answer<B> = Response<Either<B, Full<Bytes>>>;

impl<S, B> Service<Request<RequestBody>> for Front<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = ProxyError>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Response = Answer<B>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Forwarding is always ready: connections are made as they are needed.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let to_head = request.method() == Method::HEAD;
        if request.body().size_hint().lower() > self.max_body {
            return Answering::TooLarge;
        }
        if self.proxy.is_passed_again(request.headers()) {
            return Answering::Refused { why: ProxyErrorKind::Loop, to_head };
        }
        request.body_mut().bound(self.max_body);
        Answering::Forwarded { forwarding: self.inner.call(request), to_head }
    }
}

pin_project! {
    /// The answer to come.
    #[project = Stage]
    pub(super) enum Answering<F> {
        /// The inner service is asked.
        Forwarded { #[pin] forwarding: F, to_head: bool },
        /// The proxy itself refuses.
        Refused { why: ProxyErrorKind, to_head: bool },
        /// The body is too large.
        TooLarge,
    }
}

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, ProxyError>>,
{
    type Output = Result<Answer<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project() {
            Stage::Forwarded { forwarding, to_head } => match ready!(forwarding.poll(cx)) {
                Ok(response) => response.map(Either::Left),
                Err(error) => refusal(&error, *to_head),
            },
            Stage::Refused { why, to_head } => refusal(&(*why).into(), *to_head),
            Stage::TooLarge => own(too_large(), false),
        }))
    }
}

fn refusal<B>(error: &ProxyError, to_head: bool) -> Answer<B> {
    match error.kind() {
        ProxyErrorKind::Unreachable | ProxyErrorKind::Broken | ProxyErrorKind::Timeout | ProxyErrorKind::Overloaded => {
            tracing::warn!(%error, "an upstream gave no answer");
        }
        ProxyErrorKind::Loop => tracing::warn!(%error, "a request was not forwarded"),
        _ => tracing::debug!(%error, "a request was not forwarded"),
    }
    own(error.problem().to_response(), to_head)
}

fn own<B>(response: Response<Bytes>, to_head: bool) -> Answer<B> {
    response.map(|bytes| Either::Right(Full::new(if to_head { Bytes::new() } else { bytes })))
}
