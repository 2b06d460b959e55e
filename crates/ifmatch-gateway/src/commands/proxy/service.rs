//! The service of the proxy: checks requests, forwards them, and turns errors into responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use ifmatch_http_server::{BoxError, RequestBody, RequestContext};
use ifmatch_proxy::{LastExchange, Proxy, ProxyError, ProxyErrorKind};
use pin_project_lite::pin_project;
use tower_service::Service;

use ifmatch_gateway_config::route::InFront;
use ifmatch_gateway_service::gateway::{SetContext, too_large};

/// A service that forwards requests, and turns errors into responses.
#[derive(Clone, Debug)]
pub(super) struct ProxyService<S> {
    inner: S,
    proxy: Proxy,
    max_body: u64,
}

impl<S> ProxyService<S> {
    /// Wraps `inner`, which forwards by `proxy`. Rejects bodies of more than `max_body` bytes, unless their route has another limit,
    /// and forwarding loops.
    pub(super) fn new(inner: S, proxy: Proxy, max_body: u64) -> Self {
        Self {
            inner,
            proxy,
            max_body,
        }
    }
}

impl<S: SetContext> SetContext for ProxyService<S> {
    fn set_context(&mut self, context: RequestContext, exchange: Option<LastExchange>) {
        self.inner.set_context(context, exchange);
    }
}

/// A response of the inner service, or of the proxy itself.
type ProxyResponse<B> = Response<Either<B, Full<Bytes>>>;

impl<S, B> Service<Request<RequestBody>> for ProxyService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = ProxyError>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Response = ProxyResponse<B>;
    type Error = Infallible;
    type Future = ProxyServiceFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Always ready: connections are opened on demand.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let is_head = request.method() == Method::HEAD;
        let route = self
            .proxy
            .attached::<InFront>(request.uri(), request.headers());
        let max_body = route
            .as_ref()
            .and_then(|route| route.max_body)
            .unwrap_or(self.max_body);
        if request.body().size_hint().lower() > max_body {
            return ProxyServiceFuture::TooLarge;
        }
        if self.proxy.is_loop(request.headers()) {
            return ProxyServiceFuture::Rejected {
                kind: ProxyErrorKind::Loop,
                is_head,
            };
        }
        if let Some(redirection) = self.proxy.redirection(request.uri(), request.headers()) {
            return ProxyServiceFuture::Redirected {
                redirection: Some(redirection),
            };
        }
        request.body_mut().limit(max_body);
        if let Some(rules) = route.as_ref().and_then(|route| route.cache.clone()) {
            request.extensions_mut().insert(rules);
        }
        if let Some(route) = route.as_ref().filter(|route| route.hidden.is_some()) {
            // For interim responses, which don't come this way.
            request.extensions_mut().insert(Arc::clone(route));
        }
        ProxyServiceFuture::Forwarded {
            response: self.inner.call(request),
            route,
            is_head,
        }
    }
}

pin_project! {
    /// Future of a response.
    #[project = Stage]
    pub(super) enum ProxyServiceFuture<F> {
        /// The inner service has been called.
        Forwarded { #[pin] response: F, route: Option<Arc<InFront>>, is_head: bool },
        /// The route redirects.
        Redirected { redirection: Option<Response<()>> },
        /// The proxy rejects the request.
        Rejected { kind: ProxyErrorKind, is_head: bool },
        /// The body is too large.
        TooLarge,
    }
}

impl<F, B> Future for ProxyServiceFuture<F>
where
    F: Future<Output = Result<Response<B>, ProxyError>>,
{
    type Output = Result<ProxyResponse<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project() {
            Stage::Forwarded {
                response,
                route,
                is_head,
            } => match ready!(response.poll(cx)) {
                Ok(mut response) => {
                    if let Some(hidden) = route.as_ref().and_then(|route| route.hidden.as_ref()) {
                        hidden.apply(response.headers_mut());
                    }
                    response.map(Either::Left)
                }
                Err(error) => error_response(&error, *is_head),
            },
            Stage::Redirected { redirection } => {
                let redirection = redirection.take().unwrap_or_default();
                redirection.map(|()| Either::Right(Full::default()))
            }
            Stage::Rejected { kind, is_head } => error_response(&(*kind).into(), *is_head),
            Stage::TooLarge => own(too_large(), false),
        }))
    }
}

fn error_response<B>(error: &ProxyError, is_head: bool) -> ProxyResponse<B> {
    match error.kind() {
        ProxyErrorKind::Unreachable
        | ProxyErrorKind::Broken
        | ProxyErrorKind::Timeout
        | ProxyErrorKind::Overloaded => {
            tracing::warn!(%error, "an upstream did not respond");
        }
        ProxyErrorKind::Loop => tracing::warn!(%error, "cannot forward a request"),
        _ => tracing::debug!(%error, "cannot forward a request"),
    }
    own(error.problem().to_response(), is_head)
}

fn own<B>(response: Response<Bytes>, is_head: bool) -> ProxyResponse<B> {
    response.map(|bytes| Either::Right(Full::new(if is_head { Bytes::new() } else { bytes })))
}
