//! The inner service, as the layer uses it.

use std::future::{Future, poll_fn};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

/// An alias for the bounds on the inner service.
pub(crate) trait InnerService<B>: Clone + Send + 'static {
    type Body: Body<Data: Send, Error: Send> + Send + 'static;
    type Error: Send + 'static;

    /// Waits until the service is ready, then calls it.
    fn run(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

impl<S, B, T> InnerService<B> for S
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    B: Send + 'static,
{
    type Body = T;
    type Error = S::Error;

    async fn run(&mut self, request: Request<B>) -> Result<Response<T>, S::Error> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.call(request).await
    }
}
