//! The service that the layer creates.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::fetch::forward::{ForwardedRequest, revalidate};
use crate::fetch::resume::resumable;
use crate::inner_service::InnerService;
use crate::lookup::{LookupResult, lookup};
use crate::metrics::{Outcome, RequestTally};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::request::{CacheRequest, RequestHandling, accept_encoding, normalize};
use crate::respond;
use crate::respond::response_body::{BodyError, ResponseBody};
use crate::state::CacheState;
use crate::write::write;

/// A service behind a cache. Made by [`CacheLayer`](crate::CacheLayer).
///
/// The inner service must be cheap to clone. The request body needs a default, the empty body, since the cache sends
/// its own requests to the inner service, on the tokio runtime.
pub struct Cache<S> {
    inner: S,
    state: Arc<CacheState>,
    client: Option<IpAddr>,
}

impl<S> Cache<S> {
    pub(crate) fn new(inner: S, state: Arc<CacheState>) -> Self {
        Self {
            inner,
            state,
            client: None,
        }
    }

    /// Names the client of this clone's next requests. Clients that wait for each other then don't get a failure that
    /// only another client has seen and may have caused.
    pub fn set_client(&mut self, client: IpAddr) {
        self.client = Some(client);
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service. Requests in flight use a clone.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: Clone> Clone for Cache<S> {
    fn clone(&self) -> Self {
        Self {
            client: self.client,
            ..Self::new(self.inner.clone(), Arc::clone(&self.state))
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Cache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// The response, immediately or later.
type ResponseFuture<T, E> =
    Either<Ready<ResponseResult<T, E>>, Pin<Box<dyn Future<Output = ResponseResult<T, E>> + Send>>>;
type ResponseResult<T, E> = Result<Response<ResponseBody<T>>, E>;

impl<S, B, T> Service<Request<B>> for Cache<S>
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body + Default + Send + 'static,
    T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
{
    type Response = Response<ResponseBody<T>>;
    type Error = S::Error;
    type Future = ResponseFuture<T, S::Error>;

    /// Always ready: stored responses are available while the inner service is busy. The future waits for it if
    /// necessary.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = &self.inner;
        let (mut head, body) = request.into_parts();
        let state = &self.state;
        normalize::apply(&state.config.query, &mut head.uri);
        match RequestHandling::of(&head, &body, &state.config) {
            RequestHandling::Read(key, flags) => {
                key.set_host(&mut head);
                if state.config.normalizes_accept_encoding {
                    accept_encoding::normalize(&mut head.headers);
                }
                let mut request = CacheRequest::new(head, key, flags, &state.config);
                request.client = self.client;
                match lookup(state, &request) {
                    LookupResult::Hit(response, outcome) => {
                        state.counters.ended(outcome);
                        let response = if response.body().may_break_off() {
                            resumable::<B, _>(response, &request, inner.clone())
                        } else {
                            response
                        };
                        Either::Left(ready(Ok(response)))
                    }
                    LookupResult::HitAndRevalidate(response, outcome, plan) => {
                        state.counters.ended(outcome);
                        let (state, inner) = (Arc::clone(state), inner.clone());
                        Either::Right(Box::pin(async move {
                            let response = resumable::<B, _>(response, &request, inner.clone());
                            revalidate::<_, B>(&state, &request, plan, inner);
                            Ok(response)
                        }))
                    }
                    LookupResult::Forward(plan) => {
                        let forwarding = ForwardedRequest::new(state, request, plan);
                        Either::Right(Box::pin(forwarding.run::<B, _>(inner.clone())))
                    }
                }
            }
            RequestHandling::Write(key) => {
                key.set_host(&mut head);
                let request = Request::from_parts(head, body);
                Either::Right(Box::pin(write(
                    Arc::clone(state),
                    inner.clone(),
                    key,
                    request,
                )))
            }
            RequestHandling::OnlyIfCached => {
                state.counters.ended(Outcome::OnlyIfCached);
                Either::Left(ready(Ok(respond::only_if_cached())))
            }
            RequestHandling::Method => self.pass(
                inner.clone(),
                Request::from_parts(head, body),
                Forward::Method,
            ),
            RequestHandling::Bypass => self.pass(
                inner.clone(),
                Request::from_parts(head, body),
                Forward::Bypass,
            ),
        }
    }
}

impl<S> Cache<S> {
    /// Forwards a request without caching.
    fn pass<B, N>(
        &self,
        mut inner: N,
        request: Request<B>,
        why: Forward,
    ) -> ResponseFuture<N::Body, N::Error>
    where
        N: InnerService<B>,
        B: Send + 'static,
    {
        let tally = RequestTally::of(&self.state, Outcome::stored(why));
        Either::Right(Box::pin(async move {
            let _tally = tally;
            let (mut head, body) = inner.run(request).await?.into_parts();
            CacheStatus::forwarded(why).append_to(&mut head.headers);
            Ok(Response::from_parts(head, ResponseBody::inner(body)))
        }))
    }
}
