//! The response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::read::ReadContext;
use crate::watched::WatchedRequest;

type ResponseResult<T, E> = Result<Response<ResponseBody<T>>, E>;

type BoxedResponse<T, E> = Pin<Box<dyn Future<Output = ResponseResult<T, E>> + Send>>;

pin_project! {
    /// Response future of [`ConditionalService`](crate::ConditionalService).
    ///
    /// ```
    /// use axum::Router;
    /// use axum::body::Body;
    /// use http::Request;
    /// use ifmatch::ConditionalLayer;
    /// use tower::{Layer, Service};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let mut service = ConditionalLayer::new().layer(Router::new());
    /// let response = service.call(Request::new(Body::empty())); // a router is always ready
    /// assert_eq!(response.await.unwrap().status(), 404);
    /// # });
    /// ```
    pub struct ResponseFuture<F, T: Body, E> {
        #[pin]
        kind: FutureKind<F, T, E>,
        watched: Option<WatchedRequest>,
    }
}

pin_project! {
    /// What the response waits for.
    #[project = KindProjection]
    enum FutureKind<F, T: Body, E> {
        /// The response exists.
        Ready { response: Option<Response<ResponseBody<T>>> },
        /// The inner service runs for a read that needn't ask the register first.
        Read { #[pin] inner: F, context: Option<ReadContext> },
        /// Anything that takes longer.
        Boxed { response: BoxedResponse<T, E> },
    }
}

impl<F, T: Body, E> ResponseFuture<F, T, E> {
    /// Creates the response to a read from the inner service's future.
    pub(crate) fn read(inner: F, context: ReadContext) -> Self {
        Self {
            kind: FutureKind::Read {
                inner,
                context: Some(context),
            },
            watched: None,
        }
    }

    pub(crate) fn boxed(
        response: impl Future<Output = ResponseResult<T, E>> + Send + 'static,
    ) -> Self {
        Self {
            kind: FutureKind::Boxed {
                response: Box::pin(response),
            },
            watched: None,
        }
    }

    /// Reports the decision in the response, and gives an error its form.
    pub(crate) fn watched(self, watched: WatchedRequest) -> Self {
        Self {
            watched: Some(watched),
            ..self
        }
    }
}

impl<F, T: Body, E> From<Response<ResponseBody<T>>> for ResponseFuture<F, T, E> {
    fn from(response: Response<ResponseBody<T>>) -> Self {
        Self {
            kind: FutureKind::Ready {
                response: Some(response),
            },
            watched: None,
        }
    }
}

impl<F, T: Body, E> fmt::Debug for ResponseFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<F, T, E> Future for ResponseFuture<F, T, E>
where
    F: Future<Output = Result<Response<T>, E>>,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    E: 'static,
{
    type Output = ResponseResult<T, E>;

    /// Stays pending if polled after completion.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResponseResult<T, E>> {
        let this = self.project();
        let mut result = ready!(this.kind.poll(cx));
        if let (Ok(response), Some(watched)) = (&mut result, this.watched.take()) {
            watched.finish(response);
        }
        Poll::Ready(result)
    }
}

impl<F, T, E> FutureKind<F, T, E>
where
    F: Future<Output = Result<Response<T>, E>>,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    E: 'static,
{
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResponseResult<T, E>> {
        let response = match self.as_mut().project() {
            KindProjection::Ready { response } => {
                return response
                    .take()
                    .map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
            }
            KindProjection::Boxed { response } => return response.as_mut().poll(cx),
            KindProjection::Read { inner, context } => {
                let response = ready!(inner.poll(cx))?;
                let Some(context) = context.take() else {
                    return Poll::Pending;
                };
                match context.respond_now(response) {
                    Ok(response) => return Poll::Ready(Ok(response)),
                    Err(response) => context.respond(response),
                }
            }
        };
        let mut response: BoxedResponse<T, E> = Box::pin(response.map(Ok));
        let polled = response.as_mut().poll(cx);
        self.set(Self::Boxed { response });
        polled
    }
}
