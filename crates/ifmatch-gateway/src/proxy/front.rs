//! The service of the proxy: the cache before the upstreams, and an answer even where there is none.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use ifmatch_proxy::{ProxyError, ProxyErrorKind};
use tower_service::Service;

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

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<RequestBody>> for Front<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = ProxyError, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Forwarding is always ready: connections are made as they are needed.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        if request.body().size_hint().lower() > self.max_body {
            return Box::pin(async { Ok(own(too_large(), false)) });
        }
        let to_head = request.method() == Method::HEAD;
        let forwarding = self.inner.call(request.map(|body| body.at_most(self.max_body)));
        Box::pin(async move {
            Ok(match forwarding.await {
                Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
                Err(error) => refusal(&error, to_head),
            })
        })
    }
}

fn refusal(error: &ProxyError, to_head: bool) -> Answer {
    match error.kind() {
        ProxyErrorKind::Unreachable | ProxyErrorKind::Broken | ProxyErrorKind::Timeout => {
            tracing::warn!(%error, "an upstream gave no answer");
        }
        _ => tracing::debug!(%error, "a request was not forwarded"),
    }
    own(error.problem().to_response(), to_head)
}

fn own(response: Response<Bytes>, to_head: bool) -> Answer {
    let content = |bytes| if to_head { Bytes::new() } else { bytes };
    response.map(|bytes| Full::new(content(bytes)).map_err(|never| match never {}).boxed_unsync())
}
