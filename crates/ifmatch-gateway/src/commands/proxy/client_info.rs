//! A service that takes a request slot and reports the client to the upstream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use ifmatch_http_server::{InterimSender, RequestContext, RequestSlot};
use ifmatch_proxy::{ForwardedClient, Interim, LastExchange, ProxyError, ProxyErrorKind};
use pin_project_lite::pin_project;
use tower_service::Service;

use ifmatch_gateway_config::route::InFront;
use ifmatch_gateway_service::gateway::SetContext;

/// A service that takes a slot for each request, and describes the client in an extension.
///
/// It sits behind the cache, so cached responses take no slot and save the extension, which costs four
/// allocations.
#[derive(Clone, Debug)]
pub(super) struct ClientInfo<S> {
    inner: S,
    context: Option<RequestContext>,
    exchange: Option<LastExchange>,
}

impl<S> ClientInfo<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            context: None,
            exchange: None,
        }
    }
}

impl<S> SetContext for ClientInfo<S> {
    fn set_context(&mut self, context: RequestContext, exchange: Option<LastExchange>) {
        self.context = Some(context);
        self.exchange = exchange;
    }
}

impl<S, B, A> Service<Request<B>> for ClientInfo<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = ProxyError>,
{
    type Response = Response<SlotBody<A>>;
    type Error = ProxyError;
    type Future = ClientInfoFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let mut slot = None;
        if let Some(context) = &self.context {
            slot = context.take_slot();
            if slot.is_none() {
                return ClientInfoFuture::Overloaded;
            }
            let client = client(context, request.extensions().get().cloned());
            request.extensions_mut().insert(client);
            if let Some(exchange) = &self.exchange {
                request.extensions_mut().insert(exchange.clone());
            }
        }
        ClientInfoFuture::Forwarded {
            response: self.inner.call(request),
            slot,
        }
    }
}

/// Describes the client of a request, which gets interim responses without the fields that its route hides.
fn client(context: &RequestContext, route: Option<Arc<InFront>>) -> ForwardedClient {
    let interim = |sender: InterimSender| {
        Interim::new(move |status, mut headers| {
            if let Some(hidden) = route.as_ref().and_then(|route| route.hidden.as_ref()) {
                hidden.apply(&mut headers);
            }
            sender.send(status, headers);
        })
    };
    ForwardedClient {
        address: context.remote_address(),
        secure: context.is_secure(),
        interim: context.interim().cloned().map(interim),
    }
}

pin_project! {
    /// Future of a response.
    #[project = Stage]
    pub(super) enum ClientInfoFuture<F> {
        /// The inner service has been called.
        Forwarded { #[pin] response: F, slot: Option<RequestSlot> },
        /// There is no free slot.
        Overloaded,
    }
}

impl<F, A> Future for ClientInfoFuture<F>
where
    F: Future<Output = Result<Response<A>, ProxyError>>,
{
    type Output = Result<Response<SlotBody<A>>, ProxyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            Stage::Forwarded { response, slot } => {
                let response = ready!(response.poll(cx));
                response.map(|response| {
                    response.map(|body| SlotBody {
                        body,
                        slot: slot.take(),
                    })
                })
            }
            Stage::Overloaded => Err(ProxyErrorKind::Overloaded.into()),
        })
    }
}

pin_project! {
    /// A body that holds its request's slot until its end.
    pub(super) struct SlotBody<B> {
        #[pin]
        body: B,
        slot: Option<RequestSlot>,
    }
}

impl<B: Body<Data = Bytes>> Body for SlotBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        if matches!(&frame, Poll::Ready(None | Some(Err(_)))) || this.body.is_end_stream() {
            *this.slot = None;
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
