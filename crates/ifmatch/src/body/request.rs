//! The request's body, as the inner service receives it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::reader::PartlyReadBody;
use super::response::{BodyRest, BufferedBody, ResponseBody};

pin_project! {
    /// Request body that [`ConditionalService`](crate::ConditionalService) passes to its inner service.
    ///
    /// It's the client's body, either still arriving or received in full before the write got its permit, or the empty
    /// body of a GET that the layer sends. axum's `Router`, tonic's `Routes` and tower-http's services take any body. A
    /// service of your own takes this one:
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use ifmatch::{ConditionalLayer, RequestBody};
    /// use tower::{Layer, service_fn};
    ///
    /// async fn echo(request: Request<RequestBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    ///     let content = request.into_body().collect().await?.to_bytes();
    ///     Ok(Response::new(Full::new(content)))
    /// }
    ///
    /// let service = ConditionalLayer::new().layer(service_fn(echo));
    /// ```
    pub struct RequestBody<B: Body> {
        #[pin]
        body: ResponseBody<B>,
        progress: Option<Arc<BodyProgress>>,
    }
}

/// The bytes of a body that have arrived while its write holds a permit.
#[derive(Debug, Default)]
pub(crate) struct BodyProgress(AtomicU64);

impl BodyProgress {
    /// Returns the number of bytes since the previous call.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::AcqRel)
    }
}

/// A request body before its write begins.
pub(crate) struct ReceivedBody<B: Body> {
    pub(crate) body: RequestBody<B>,
    /// The progress of a body that is still arriving.
    pub(crate) progress: Option<Arc<BodyProgress>>,
}

impl<B: Body> ReceivedBody<B> {
    /// A body that was read to its end.
    pub(crate) fn whole(content: BufferedBody) -> Self {
        Self {
            body: RequestBody {
                body: ResponseBody::buffered(content),
                progress: None,
            },
            progress: None,
        }
    }

    /// A body that continues to arrive.
    pub(crate) fn arriving(body: B) -> Self {
        Self::measured(ResponseBody::inner(body))
    }

    /// A partly read body.
    pub(crate) fn partial(reader: PartlyReadBody<B>, error: Option<B::Error>) -> Self {
        let rest = error.map_or(BodyRest::Body(reader.body), |error| {
            BodyRest::Error(Some(error))
        });
        Self::measured(ResponseBody::replay(reader.chunks, rest))
    }

    fn measured(body: ResponseBody<B>) -> Self {
        let progress = Arc::new(BodyProgress::default());
        Self {
            body: RequestBody {
                body,
                progress: Some(Arc::clone(&progress)),
            },
            progress: Some(progress),
        }
    }
}

impl<B: Body> RequestBody<B> {
    /// Passes a body on unchanged.
    pub fn new(body: B) -> Self {
        Self {
            body: ResponseBody::inner(body),
            progress: None,
        }
    }

    /// Returns the client's body if the layer has read none of it and doesn't measure its progress. For services that
    /// can pass it on more cheaply than frame by frame.
    pub fn inner_mut(&mut self) -> Option<&mut B> {
        if self.progress.is_some() {
            None
        } else {
            self.body.inner_mut()
        }
    }
}

/// The empty body.
impl<B: Body> Default for RequestBody<B> {
    fn default() -> Self {
        Self {
            body: ResponseBody::empty(),
            progress: None,
        }
    }
}

impl<B: Body> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(progress)) = (&polled, this.progress)
            && let Some(data) = frame.data_ref()
        {
            progress.0.fetch_add(data.len() as u64, Ordering::AcqRel);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
