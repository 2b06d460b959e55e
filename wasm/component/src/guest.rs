//! The guest: the component behind this one.

use std::future::Future;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use send_wrapper::SendWrapper;
use wasip3::http_compat::{IncomingResponseBody, http_from_wasi_response, http_into_wasi_request};

use crate::bindings::wasi::http::handler;
use crate::body::{Body, Failed};

/// The guest, as a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner;

impl<B> tower::Service<Request<B>> for Inner
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
{
    type Response = Response<Body<IncomingResponseBody>>;
    type Error = Failed;
    type Future = SendWrapper<std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Failed>>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        SendWrapper::new(Box::pin(async {
            let response = handler::handle(http_into_wasi_request(request).map_err(Failed)?).await.map_err(Failed)?;
            Ok(http_from_wasi_response(response).map_err(Failed)?.map(Body::new))
        }))
    }
}
