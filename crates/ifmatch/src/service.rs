//! The service that the layer makes of another one: dispatches reads, writes and lease operations.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::RANGE;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_core::fields;
use ifmatch_runtime::task::detach;
use tower_service::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::future::ResponseFuture;
use crate::inner::{self, InnerService, RequestContent};
use crate::lease::PendingLeaseOperation;
use crate::lease::request::names_lease;
use crate::read::ReadContext;
use crate::read::cached::{LookupResult, MemoryLookup};
use crate::shared::LayerState;
use crate::watched::WatchedRequest;
use crate::{lease, mount, read, responses, write};

/// Adds strong entity tags, conditional requests and race-free conditional writes to an inner service. Created by
/// [`ConditionalLayer`](crate::ConditionalLayer).
///
/// The inner service takes requests with a [`RequestBody`](crate::RequestBody), and must be cheap to clone.
pub struct ConditionalService<S> {
    inner: S,
    shared: Arc<LayerState>,
}

impl<S> ConditionalService<S> {
    pub(crate) fn new(inner: S, shared: Arc<LayerState>) -> Self {
        Self { inner, shared }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone> Clone for ConditionalService<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.shared))
    }
}

impl<S: fmt::Debug> fmt::Debug for ConditionalService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionalService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, B> Service<Request<B>> for ConditionalService<S>
where
    S: InnerService<B>,
    B: Body<Data: Send, Error: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<S::Body>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Body, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Take the clone that is ready, and release it on paths that don't call it.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let shared = &self.shared;
        let (mut head, body) = request.into_parts();
        mount::enter(&mut head);
        let start = WatchedRequest::start(shared);
        match RequestKind::of(&head.method) {
            RequestKind::Read => answer_read(shared, inner, head, body, start),
            RequestKind::Write => {
                let watched = WatchedRequest::new(shared, &head, start);
                // A write may wait for others, so it must not hold the ready clone.
                drop(inner);
                let inner = self.inner.clone();
                if let Some(operation) = PendingLeaseOperation::of(shared, &head) {
                    return ResponseFuture::boxed(operation.run(inner)).watched(watched);
                }
                // Boxed where it is made: it takes kilobytes, which each layer of the task would copy.
                let write = detach(Box::pin(write::write(
                    Arc::clone(shared),
                    inner,
                    Request::from_parts(head, body),
                )));
                let result = async {
                    write
                        .result()
                        .await
                        .unwrap_or_else(|| Ok(responses::outcome_unknown()))
                };
                ResponseFuture::boxed(result).watched(watched)
            }
            RequestKind::Other => ResponseFuture::boxed(async move {
                let response = inner::run(
                    &mut inner,
                    Request::from_parts(head, RequestBody::new(body)),
                )
                .await?;
                Ok(response.map(ResponseBody::inner))
            }),
        }
    }
}

/// Answers a read from memory if the result is certain at once. Otherwise, runs the inner service.
fn answer_read<S, B>(
    shared: &Arc<LayerState>,
    mut inner: S,
    head: Parts,
    body: B,
    start: Option<Timestamp>,
) -> ResponseFuture<S::Future, S::Body, S::Error>
where
    S: InnerService<B>,
    B: RequestContent,
{
    let Ok(key) = shared.config.keys.key(&head) else {
        let watched = WatchedRequest::answered(shared, head.method, head.uri, start);
        return ResponseFuture::from(responses::problem(&responses::invalid_key()))
            .watched(watched);
    };
    let lookup = MemoryLookup::new(shared, key, &head);
    if names_lease(&shared.config, &head) {
        let watched = WatchedRequest::new(shared, &head, start);
        let request = Request::from_parts(head, RequestBody::new(body));
        let read = lease::read(Arc::clone(shared), inner, lookup, request);
        return ResponseFuture::boxed(read).watched(watched);
    }
    let found = lookup.result_now(shared);
    if let Some(LookupResult::NotModified(response)) = found {
        let watched = WatchedRequest::answered(shared, head.method, head.uri, start);
        return ResponseFuture::from(response).watched(watched);
    }
    let watched = WatchedRequest::new(shared, &head, start);
    let response = match found {
        Some(LookupResult::Run(baseline)) if !fields::has(&head.headers, &RANGE) => {
            let (context, head) = ReadContext::new(Arc::clone(shared), lookup.key, baseline, head);
            ResponseFuture::read(
                inner.call(Request::from_parts(head, RequestBody::new(body))),
                context,
            )
        }
        _ => {
            let request = Request::from_parts(head, RequestBody::new(body));
            ResponseFuture::boxed(read::read(Arc::clone(shared), inner, lookup, request))
        }
    };
    response.watched(watched)
}

/// The way in which the layer handles a request.
enum RequestKind {
    Read,
    Write,
    Other,
}

impl RequestKind {
    /// CONNECT, OPTIONS and TRACE ignore conditions (RFC 9110 §13.2.1). The layer can't evaluate them for other safe
    /// methods, which don't select the representation that GET does.
    fn of(method: &Method) -> Self {
        match method.as_str() {
            "GET" | "HEAD" => Self::Read,
            "OPTIONS" | "TRACE" | "CONNECT" | "QUERY" | "PROPFIND" | "REPORT" | "SEARCH" => {
                Self::Other
            }
            _ => Self::Write,
        }
    }
}
