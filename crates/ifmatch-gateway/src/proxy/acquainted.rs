//! Forwarding for a visitor: takes a request slot of the gateway and tells the upstream about the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use ifmatch_cache::Cache;
use ifmatch_proxy::{Client, ProxyError, ProxyErrorKind};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::entrance::{Entered, Entrance};
use crate::interim::Turn;

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// Client to report to the upstream.
    pub(crate) client: Client,
    /// Sink for interim responses.
    pub(crate) turn: Option<Turn>,
    /// Access to a slot for its request.
    pub(crate) entrance: Entrance,
}

/// A service that can be told who asks before it is called.
pub(crate) trait Introduce {
    /// Sets the visitor that sends the next request.
    fn introduce(&mut self, visitor: Visitor);
}

/// A service that takes a slot for each request, and describes the client in an extension.
///
/// It sits behind the cache, so that cached responses occupy no upstream slot and save the extension, which costs four
/// allocations.
#[derive(Clone, Debug)]
pub(super) struct Acquainted<S> {
    inner: S,
    visitor: Option<Visitor>,
}

impl<S> Acquainted<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, visitor: None }
    }
}

impl<S> Introduce for Acquainted<S> {
    fn introduce(&mut self, visitor: Visitor) {
        self.visitor = Some(visitor);
    }
}

impl<S: Introduce> Introduce for Cache<S> {
    fn introduce(&mut self, visitor: Visitor) {
        self.get_mut().introduce(visitor);
    }
}

impl<S, B, A> Service<Request<B>> for Acquainted<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = ProxyError>,
{
    type Response = Response<Placed<A>>;
    type Error = ProxyError;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let mut place = None;
        if let Some(Visitor { client, turn, entrance }) = &self.visitor {
            place = entrance.enter();
            if place.is_none() {
                return Answering::Refused;
            }
            let interim = turn.as_ref().map(Turn::interim);
            request.extensions_mut().insert(Client { interim, ..client.clone() });
        }
        Answering::Asked { asking: self.inner.call(request), place }
    }
}

pin_project! {
    /// Future of a response.
    #[project = Stage]
    pub(super) enum Answering<F> {
        /// The inner service has been called.
        Asked { #[pin] asking: F, place: Option<Entered> },
        /// There is no free slot.
        Refused,
    }
}

impl<F, A> Future for Answering<F>
where
    F: Future<Output = Result<Response<A>, ProxyError>>,
{
    type Output = Result<Response<Placed<A>>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            Stage::Asked { asking, place } => {
                let answer = ready!(asking.poll(cx));
                answer.map(|response| response.map(|body| Placed { body, place: place.take() }))
            }
            Stage::Refused => Err(ProxyErrorKind::Overloaded.into()),
        })
    }
}

pin_project! {
    /// A body that holds its request's slot until its end.
    pub(super) struct Placed<B> {
        #[pin]
        body: B,
        place: Option<Entered>,
    }
}

impl<B: Body<Data = Bytes>> Body for Placed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        if matches!(&frame, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            *this.place = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
