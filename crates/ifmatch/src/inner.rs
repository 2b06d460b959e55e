//! The inner service, as the layer uses it.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::RequestBody;
use crate::mount;

/// A service that [`ConditionalLayer`](crate::ConditionalLayer) can wrap, for requests with bodies of type `B`.
///
/// Implemented for every [`Service`] that takes `Request<RequestBody<B>>`, returns `Response<T>`, and is cheap to
/// clone. axum's `Router` is one, for bodies of any type.
///
/// ```
/// use ifmatch::InnerService;
///
/// fn is_one<S: InnerService<String>>(_: S) {}
/// is_one(axum::Router::new());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service that `ConditionalLayer` can wrap for request bodies of type `{B}`",
    label = "not a service for `http::Request<ifmatch::RequestBody<{B}>>`",
    note = "the inner service takes `http::Request<ifmatch::RequestBody<{B}>>`, or a request with any body, and returns an \
            `http::Response` with an `http_body::Body`",
    note = "it is `Clone + Send + 'static`, and its future and its error are `Send`"
)]
pub trait InnerService<B: Body>: Clone + Send + 'static {
    /// The body of the responses.
    type Body: Body<Data: Send, Error: Send> + Send + 'static;
    /// The service's error.
    type Error: Send + 'static;
    /// A response's future.
    type Future: Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;

    /// Polls the service until it is ready, as in [`Service::poll_ready`].
    ///
    /// # Errors
    /// Returns the service's error if it can no longer take requests.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>>;

    /// Calls the service, as in [`Service::call`].
    fn call(&mut self, request: Request<RequestBody<B>>) -> Self::Future;
}

impl<S, B, T> InnerService<B> for S
where
    S: Service<
            Request<RequestBody<B>>,
            Response = Response<T>,
            Future: Send,
            Error: Send + 'static,
        > + Clone
        + Send
        + 'static,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    B: Body,
{
    type Body = T;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Service::poll_ready(self, cx)
    }

    fn call(&mut self, mut request: Request<RequestBody<B>>) -> S::Future {
        mount::leave(&mut request);
        Service::call(self, request)
    }
}

/// Waits until the service is ready, then calls it.
pub(crate) async fn run<S, B>(
    inner: &mut S,
    request: Request<RequestBody<B>>,
) -> Result<Response<S::Body>, S::Error>
where
    S: InnerService<B>,
    B: RequestContent,
{
    poll_fn(|cx| inner.poll_ready(cx)).await?;
    inner.call(request).await
}

/// An alias for the bounds on the client's body.
pub(crate) trait RequestContent: Body<Data: Send, Error: Send> + Send + 'static {}

impl<B: Body<Data: Send, Error: Send> + Send + 'static> RequestContent for B {}
