//! The response to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use http::Response;
use http_body::Body;
use ifmatch_register::Register;
use ifmatch_runtime::Clock;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::read::Reading;

type Answer<T, E> = Result<Response<ResponseBody<T>>, E>;

type InTime<T, E> = Pin<Box<dyn Future<Output = Answer<T, E>> + Send>>;

pin_project! {
    /// The response of a [`ConditionalService`](crate::ConditionalService) to come.
    pub struct ResponseFuture<F, T: Body, E, R, C> {
        #[pin]
        kind: Kind<F, T, E, R, C>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F, T: Body, E, R, C> {
        /// It is there already.
        AtOnce { response: Option<Response<ResponseBody<T>>> },
        /// The inner service runs, most likely for what is remembered.
        Running { #[pin] inner: F, reading: Option<Reading<R, C>> },
        /// All that takes longer.
        InTime { answer: InTime<T, E> },
    }
}

impl<F, T: Body, E, R, C> ResponseFuture<F, T, E, R, C> {
    /// The answer to a read, made of the response of the inner service, which runs.
    pub(crate) fn running(inner: F, reading: Reading<R, C>) -> Self {
        Self { kind: Kind::Running { inner, reading: Some(reading) } }
    }

    pub(crate) fn in_time(answer: impl Future<Output = Answer<T, E>> + Send + 'static) -> Self {
        Self { kind: Kind::InTime { answer: Box::pin(answer) } }
    }
}

impl<F, T: Body, E, R, C> From<Response<ResponseBody<T>>> for ResponseFuture<F, T, E, R, C> {
    fn from(response: Response<ResponseBody<T>>) -> Self {
        Self { kind: Kind::AtOnce { response: Some(response) } }
    }
}

impl<F, T: Body, E, R, C> fmt::Debug for ResponseFuture<F, T, E, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<F, T, E, R, C> Future for ResponseFuture<F, T, E, R, C>
where
    F: Future<Output = Result<Response<T>, E>>,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    E: 'static,
    R: Register,
    C: Clock,
{
    type Output = Answer<T, E>;

    /// Once it has ended it waits for ever.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer<T, E>> {
        let mut kind = self.project().kind;
        let answer = match kind.as_mut().project() {
            KindProjection::AtOnce { response } => {
                return response.take().map_or(Poll::Pending, |it| Poll::Ready(Ok(it)));
            }
            KindProjection::InTime { answer } => return answer.as_mut().poll(cx),
            KindProjection::Running { inner, reading } => {
                let response = ready!(inner.poll(cx))?;
                let Some(reading) = reading.take() else { return Poll::Pending };
                match reading.answer_at_once(response) {
                    Ok(answer) => return Poll::Ready(Ok(answer)),
                    Err(response) => reading.answer(response),
                }
            }
        };
        let mut answer: InTime<T, E> = Box::pin(answer.map(Ok));
        let polled = answer.as_mut().poll(cx);
        kind.set(Kind::InTime { answer });
        polled
    }
}
