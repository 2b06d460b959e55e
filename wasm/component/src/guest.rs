//! The guest: the component behind this one.

use std::future::Future;
use std::task::{Context, Poll};

use http::{Request, Response};
use send_wrapper::SendWrapper;
use wasip3::http::types;

use crate::bindings::wasi::http::handler;
use crate::failed::FailedRequest;
use crate::incoming::{self, Incoming};
use crate::outgoing;

/// Hands a request on as it is.
pub(crate) async fn pass(request: types::Request) -> Result<types::Response, FailedRequest> {
    handler::handle(request).await.map_err(FailedRequest)
}

/// The guest, as a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestService;

impl<B: outgoing::OutgoingBody> tower::Service<Request<B>> for GuestService {
    type Response = Response<Incoming<types::Response>>;
    type Error = FailedRequest;
    type Future =
        SendWrapper<std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, FailedRequest>>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailedRequest>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        SendWrapper::new(Box::pin(async {
            incoming::response(pass(outgoing::request(request)?).await?)
        }))
    }
}
