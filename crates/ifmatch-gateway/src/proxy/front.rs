//! The service of the proxy: the cache before the upstreams, and an answer even where there is none.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use ifmatch_proxy::{Client, ProxyError, ProxyErrorKind};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::acquainted::Introduce;
use crate::interim::Turn;
use crate::request_body::{RequestBody, too_large};
use crate::response_body::BoxError;

/// A service that forwards, and turns its failures into answers.
#[derive(Clone, Debug)]
pub(super) struct Front<S> {
    inner: S,
    max_body: u64,
}

impl<S> Front<S> {
    /// Puts itself in front of `inner`, which gets no bodies longer than `max_body` bytes.
    pub(super) fn new(inner: S, max_body: u64) -> Self {
        Self { inner, max_body }
    }
}

impl<S: Introduce> Introduce for Front<S> {
    fn introduce(&mut self, client: Client, turn: Option<Turn>) {
        self.inner.introduce(client, turn);
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
        if request.body().size_hint().lower() > self.max_body {
            return Answering { forwarding: None, to_head: false };
        }
        let to_head = request.method() == Method::HEAD;
        request.body_mut().bound(self.max_body);
        Answering { forwarding: Some(self.inner.call(request)), to_head }
    }
}

pin_project! {
    /// The answer to come.
    pub(super) struct Answering<F> {
        // None: the body is too large.
        #[pin]
        forwarding: Option<F>,
        to_head: bool,
    }
}

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, ProxyError>>,
{
    type Output = Result<Answer<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(forwarding) = this.forwarding.as_pin_mut() else { return Poll::Ready(Ok(own(too_large(), false))) };
        Poll::Ready(Ok(match ready!(forwarding.poll(cx)) {
            Ok(response) => response.map(Either::Left),
            Err(error) => refusal(&error, *this.to_head),
        }))
    }
}

fn refusal<B>(error: &ProxyError, to_head: bool) -> Answer<B> {
    match error.kind() {
        ProxyErrorKind::Unreachable | ProxyErrorKind::Broken | ProxyErrorKind::Timeout => {
            tracing::warn!(%error, "an upstream gave no answer");
        }
        _ => tracing::debug!(%error, "a request was not forwarded"),
    }
    own(error.problem().to_response(), to_head)
}

fn own<B>(response: Response<Bytes>, to_head: bool) -> Answer<B> {
    response.map(|bytes| Either::Right(Full::new(if to_head { Bytes::new() } else { bytes })))
}
