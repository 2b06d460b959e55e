//! The service that the layer makes of another one: reads here, writes there, the rest passes.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use ifmatch_store::{Clock, MemoryRegister, Register, SystemClock};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::detach::detach;
use crate::shared::{Inner, Shared};
use crate::{answer, read, write};

/// A service with strong entity tags, conditional requests and race-free conditional writes. Made by
/// [`ConditionalLayer`](crate::ConditionalLayer).
///
/// Its inner service must be cheap to clone, and the request's body needs a default, the empty one: with it the layer asks
/// for the current state before a conditional write.
pub struct ConditionalService<S, R = MemoryRegister, C = SystemClock> {
    inner: S,
    shared: Arc<Shared<R, C>>,
}

impl<S, R, C> ConditionalService<S, R, C> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<R, C>>) -> Self {
        Self { inner, shared }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone, R, C> Clone for ConditionalService<S, R, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.shared))
    }
}

impl<S: fmt::Debug, R, C> fmt::Debug for ConditionalService<S, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionalService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The response to come.
type ResponseFuture<T, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<T>>, E>> + Send>>;

impl<S, B, T, R, C> Service<Request<B>> for ConditionalService<S, R, C>
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    B: Default + Send + 'static,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    R: Register,
    C: Clock,
{
    type Response = Response<ResponseBody<T>>;
    type Error = S::Error;
    type Future = ResponseFuture<T, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let later = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, later);
        let shared = Arc::clone(&self.shared);
        match Kind::of(request.method()) {
            Kind::Read => Box::pin(read::read(shared, ready, request)),
            Kind::Write => {
                // A write may wait for others: meanwhile it must not hold a place in the inner service.
                let inner = ready.clone();
                drop(ready);
                let written = detach(write::write(shared, inner, request));
                Box::pin(async { written.result().await.unwrap_or_else(|| Ok(answer::interrupted())) })
            }
            Kind::Other => Box::pin(async move { Ok(ready.run(request).await?.map(ResponseBody::inner)) }),
        }
    }
}

enum Kind {
    Read,
    Write,
    Other,
}

impl Kind {
    /// Safe methods (RFC 9110 §9.2.1, and those registered as safe elsewhere) other than GET and HEAD have no conditions
    /// that this layer could evaluate.
    fn of(method: &Method) -> Self {
        match method.as_str() {
            "GET" | "HEAD" => Self::Read,
            "OPTIONS" | "TRACE" | "CONNECT" | "QUERY" | "PROPFIND" | "REPORT" | "SEARCH" => Self::Other,
            _ => Self::Write,
        }
    }
}
