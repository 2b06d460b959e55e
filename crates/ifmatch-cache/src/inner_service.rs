//! The service behind the cache.

use std::future::Future;

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::respond::response_body::BodyError;

/// The inner service, with the bounds that the cache needs.
pub(crate) trait InnerService<B>: Clone + Send + 'static {
    /// The body of its responses.
    type Body: Body<Data: Send, Error: Into<BodyError>> + Send + 'static;
    /// Its error.
    type Error: Send + 'static;

    /// Waits until the service is ready, then calls it.
    fn run(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

impl<S, B, T> InnerService<B> for S
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static>
        + Clone
        + Send
        + 'static,
    T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    B: Send + 'static,
{
    type Body = T;
    type Error = S::Error;

    async fn run(&mut self, request: Request<B>) -> Result<Response<T>, S::Error> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await?;
        self.call(request).await
    }
}
