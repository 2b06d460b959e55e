//! Forwarding a request for a visitor: it takes one of the gateway's places, and the upstream is told who asks.

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
    /// The client, for the upstream to know.
    pub(crate) client: Client,
    /// Takes what is said before the answer.
    pub(crate) turn: Option<Turn>,
    /// The way to a place for its request.
    pub(crate) entrance: Entrance,
}

/// A service that can be told who asks before it is called.
pub(crate) trait Introduce {
    /// The next request is this visitor's.
    fn introduce(&mut self, visitor: Visitor);
}

/// A service whose requests take a place, and say by an extension who asks.
///
/// It stands behind the cache: what is answered from there takes no place of those who wait for an upstream, and needs no
/// extension, which is made of four pieces of memory.
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
    /// The answer to come.
    #[project = Stage]
    pub(super) enum Answering<F> {
        /// The inner service is asked.
        Asked { #[pin] asking: F, place: Option<Entered> },
        /// There is no place.
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
    /// A body that keeps its request's place until its end.
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
