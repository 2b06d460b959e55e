//! The service that the layer makes of another one.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{Request, Response};
use http_body::Body;
use ifmatch_runtime::{Clock, SystemClock};
use tower_service::Service;

use crate::asked::{Asked, Kind};
use crate::body::{BodyError, ResponseBody};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::read::{Forwarding, Look, look, validate};
use crate::shared::{Inner, Shared};
use crate::write::write;

/// A service with a shared cache in front of it. Made by [`CacheLayer`](crate::CacheLayer).
///
/// Its inner service must be cheap to clone. The request's body needs a default, the empty one: the cache asks the inner
/// service by requests of its own, on the tokio runtime.
pub struct Cache<S, C = SystemClock> {
    inner: S,
    shared: Arc<Shared<C>>,
}

impl<S, C> Cache<S, C> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<C>>) -> Self {
        Self { inner, shared }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, to be changed. Requests that are on their way have a copy of it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: Clone, C> Clone for Cache<S, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.shared))
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Cache<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The answer, at once or later.
type Answering<T, E> = Either<Ready<Answered<T, E>>, Pin<Box<dyn Future<Output = Answered<T, E>> + Send>>>;
type Answered<T, E> = Result<Response<ResponseBody<T>>, E>;

impl<S, B, T, C> Service<Request<B>> for Cache<S, C>
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    B: Body + Default + Send + 'static,
    T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    C: Clock,
{
    type Response = Response<ResponseBody<T>>;
    type Error = S::Error;
    type Future = Answering<T, S::Error>;

    /// Always ready: what is stored can be had while the inner service is busy. Requests that need it wait in the
    /// future.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = &self.inner;
        let (mut head, body) = request.into_parts();
        let shared = &self.shared;
        match Kind::of(&head, &body, &shared.config) {
            Kind::Read(key, signs) => {
                key.put_host(&mut head);
                let asked = Asked::new(head, key, signs, &shared.config);
                match look(shared, &asked) {
                    Look::Answer(response) => Either::Left(ready(Ok(response))),
                    Look::AnswerAndValidate(response, plan) => {
                        let (shared, inner) = (Arc::clone(shared), inner.clone());
                        Either::Right(Box::pin(async move {
                            validate::<_, _, B>(&shared, &asked, plan, inner);
                            Ok(response)
                        }))
                    }
                    Look::Forward(plan) => {
                        let forwarding = Forwarding { shared: Arc::clone(shared), asked, plan };
                        Either::Right(Box::pin(forwarding.run::<B, _>(inner.clone())))
                    }
                }
            }
            Kind::Write(key) => {
                key.put_host(&mut head);
                let request = Request::from_parts(head, body);
                Either::Right(Box::pin(write(Arc::clone(shared), inner.clone(), key, request)))
            }
            Kind::Method => self.pass(inner.clone(), Request::from_parts(head, body), Forward::Method),
            Kind::Bypass => self.pass(inner.clone(), Request::from_parts(head, body), Forward::Bypass),
        }
    }
}

impl<S, C: Clock> Cache<S, C> {
    /// Passes a request on.
    fn pass<B, N>(&self, mut inner: N, request: Request<B>, why: Forward) -> Answering<N::Body, N::Error>
    where
        N: Inner<B>,
        B: Send + 'static,
    {
        self.shared.counters.passed.add(1);
        Either::Right(Box::pin(async move {
            let (mut head, body) = inner.run(request).await?.into_parts();
            CacheStatus::forwarded(why).append_to(&mut head.headers);
            Ok(Response::from_parts(head, ResponseBody::inner(body)))
        }))
    }
}
