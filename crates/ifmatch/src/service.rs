//! The service that the layer makes of another one: reads here, writes there, the rest passes.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::RANGE;
use http::{Method, Request, Response};
use http_body::Body;
use ifmatch_core::fields;
use ifmatch_register::{MemoryRegister, Register};
use ifmatch_runtime::task::detach;
use ifmatch_runtime::{Clock, SystemClock};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::ResponseFuture;
use crate::read::Reading;
use crate::read::cached::Sought;
use crate::shared::{Inner, Shared};
use crate::{lease, read, responses, write};

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
    type Future = ResponseFuture<S::Future, T, S::Error, R, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Whoever does not run the inner service must not keep the place that it has in it, either.
        let later = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, later);
        let shared = &self.shared;
        match Kind::of(request.method()) {
            Kind::Read => {
                let (head, body) = request.into_parts();
                let Ok(key) = shared.config.keys.key(&head) else { return responses::no_such_key().into() };
                let sought = Sought::new(shared, key, &head);
                if lease::is_named(&shared.config, &head) {
                    let request = Request::from_parts(head, body);
                    return ResponseFuture::in_time(lease::read(Arc::clone(shared), inner, sought, request));
                }
                match sought.answer_at_once(shared) {
                    Some(Ok(response)) => response.into(),
                    Some(Err(looked)) if !fields::has(&head.headers, &RANGE) => {
                        let (reading, head) = Reading::new(Arc::clone(shared), sought, looked, head);
                        ResponseFuture::running(inner.call(Request::from_parts(head, body)), reading)
                    }
                    _ => {
                        let request = Request::from_parts(head, body);
                        ResponseFuture::in_time(read::read(Arc::clone(shared), inner, sought, request))
                    }
                }
            }
            Kind::Write => {
                // A write may wait for others: meanwhile it must not keep it, too.
                drop(inner);
                let inner = self.inner.clone();
                let (head, body) = request.into_parts();
                if let Some(operating) = lease::Operating::of(shared, &head) {
                    return ResponseFuture::in_time(operating.run(inner));
                }
                let request = Request::from_parts(head, body);
                let written = detach(write::write(Arc::clone(shared), inner, request));
                ResponseFuture::in_time(async {
                    written.result().await.unwrap_or_else(|| Ok(responses::interrupted()))
                })
            }
            Kind::Other => {
                ResponseFuture::in_time(async move { Ok(inner.run(request).await?.map(ResponseBody::inner)) })
            }
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
