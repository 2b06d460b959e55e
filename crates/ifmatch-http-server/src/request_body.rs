//! The body of a request, with a minimum transfer rate and an optional maximum size.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use tokio::runtime::Handle;

use crate::handler::BoxError;
use crate::http2::StreamBody;
use crate::progress_timeout::ProgressTimeout;

/// Maximum time to read the rest of a body after the response.
const DRAIN: Duration = Duration::from_secs(5);

/// The body of a request as received by HTTP/1 or HTTP/2.
pub(crate) type ReceivedBody = Either<Either<Incoming, StreamBody>, Full<Bytes>>;

/// The body of a request. The default one is empty.
///
/// Fails with [`BodyError::TooSlow`] if the client sends less than 1 KiB within the timeout.
///
/// If it is dropped early, the rest is read and discarded for up to 5 seconds. Otherwise an HTTP/1 connection would be
/// closed while the client is still sending, and the client would see a reset instead of the response.
#[derive(Debug, Default)]
pub struct RequestBody(Option<Box<NonEmptyBody>>);

/// A non-empty body. Boxed because requests are moved often, and most have no body.
#[derive(Debug)]
struct NonEmptyBody {
    /// `None` once it is being drained.
    body: Option<ReceivedBody>,
    timeout: ProgressTimeout,
    /// Number of bytes still allowed, if there is a limit.
    allowed: Option<u64>,
    progress: Arc<BodyProgress>,
    /// `true` if the rest is read after a drop. A client that expects `100 Continue` sends it only after `100 Continue`.
    drains: bool,
}

/// The progress of a body, shared with the response to its request.
#[derive(Debug, Default)]
pub struct BodyProgress {
    received: AtomicU64,
    asked: AtomicBool,
    too_slow: AtomicBool,
    too_large: AtomicBool,
}

/// Reason why a body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The client sent too few bytes in time.
    #[error("the request body arrived too slowly")]
    TooSlow,
    /// The client sent more bytes than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// The client disconnected, or sent malformed data.
    #[error("the request body ended early")]
    Broken(#[from] BoxError),
}

impl RequestBody {
    /// Applies a timeout to the body of `request`.
    pub(crate) fn wrap(request: Request<ReceivedBody>, timeout: Duration) -> Request<Self> {
        if request.body().is_end_stream() {
            return request.map(|_| Self::default());
        }
        let drains =
            request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
        request.map(|body| Self::new(body, timeout, drains))
    }

    fn new(body: ReceivedBody, timeout: Duration, drains: bool) -> Self {
        Self(Some(Box::new(NonEmptyBody {
            body: Some(body),
            timeout: ProgressTimeout::new(timeout),
            allowed: None,
            progress: Arc::default(),
            drains,
        })))
    }

    /// Limits its size to `max` bytes. A larger body fails with [`BodyError::TooLarge`].
    pub fn limit(&mut self, max: u64) {
        if let Some(content) = &mut self.0 {
            content.allowed = Some(max);
        }
    }

    /// Returns the progress of the body, or `None` if it is empty.
    pub fn progress(&self) -> Option<Arc<BodyProgress>> {
        self.0.as_ref().map(|content| Arc::clone(&content.progress))
    }

    /// Returns the part that hasn't been read, unless the body is empty.
    fn rest(&self) -> Option<&ReceivedBody> {
        self.0.as_ref()?.body.as_ref()
    }
}

/// A body that is in memory, for a request within the process.
impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::default()
        } else {
            Self::new(Either::Right(Full::new(bytes)), Duration::MAX, false)
        }
    }
}

impl NonEmptyBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        self.progress.asked.store(true, Relaxed);
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let received = self.received(&frame);
                Poll::Ready(Some(received.map(|()| frame)))
            }
            Poll::Ready(end) => {
                self.drains = false;
                Poll::Ready(end.map(|error| Ok(error?)))
            }
            Poll::Pending => self.poll_timeout(cx).map(|error| Some(Err(error))),
        }
    }

    /// Ready with the error once the client has sent too little in time.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        ready!(self.timeout.poll_expired(cx));
        self.progress.too_slow.store(true, Relaxed);
        self.drains = false;
        Poll::Ready(BodyError::TooSlow)
    }

    /// Records a frame. Fails if it exceeds the maximum size.
    fn received(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let count = frame.data_ref().map_or(0, |data| data.remaining() as u64);
        self.timeout.transferred(count);
        self.progress.received.fetch_add(count, Relaxed);
        if let Some(allowed) = self.allowed {
            self.allowed = Some(allowed.checked_sub(count).ok_or_else(|| self.too_large())?);
        }
        Ok(())
    }

    /// Records that the body exceeds its limit, and returns the error.
    fn too_large(&self) -> BodyError {
        self.progress.too_large.store(true, Relaxed);
        BodyError::TooLarge
    }
}

impl BodyProgress {
    /// Returns the number of bytes received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Returns `true` if the body was read from, even if nothing has arrived.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Returns `true` if the body has failed with [`BodyError::TooLarge`].
    pub fn too_large(&self) -> bool {
        self.too_large.load(Relaxed)
    }

    /// Returns `true` if the body has failed with [`BodyError::TooSlow`].
    pub fn too_slow(&self) -> bool {
        self.too_slow.load(Relaxed)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0
            .as_mut()
            .map_or(Poll::Ready(None), |content| content.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.rest().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for NonEmptyBody {
    fn drop(&mut self) {
        let rest = self
            .body
            .take()
            .filter(|body| self.drains && !body.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAIN, drain(rest)));
        }
    }
}

/// Reads and discards a body.
async fn drain(mut body: ReceivedBody) {
    while let Some(Ok(_)) = body.frame().await {}
}
