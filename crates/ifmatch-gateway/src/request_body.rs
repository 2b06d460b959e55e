//! The body of a request, with a bound on the client's patience with us.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use ifmatch_core::problem::Problem;
use tokio::runtime::Handle;

use crate::http2::StreamBody;
use crate::patience::Patience;
use crate::response_body::BoxError;

/// The longest that the rest of a body is read after its request was answered.
const DRAIN: Duration = Duration::from_secs(5);

/// The body of a request as it comes: by HTTP/1, or by HTTP/2.
pub(crate) type Received = Either<Incoming, StreamBody>;

/// The body of a request as the inner service reads it; the default one is empty. Ends with [`BodyError::TooSlow`] when less than 1 KiB came
/// within the timeout.
///
/// Dropped half way, the rest is read for a while and thrown away: else HTTP/1 must close the connection on a client
/// that is still sending, and the client would see a reset instead of the answer that says why.
#[derive(Debug, Default)]
pub(crate) struct RequestBody(Option<Box<Content>>);

/// A body that is not empty. Boxed, as requests are moved often, and most have none.
#[derive(Debug)]
struct Content {
    /// Gone once it is being drained.
    body: Option<Received>,
    patience: Patience,
    /// Bytes that may still come, if they are bounded.
    room: Option<u64>,
    fate: Arc<Fate>,
    /// Whether to read the rest. Not of a body that the client sends only if asked to.
    drains: bool,
}

/// What became of a body; shared with the request's answer.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    received: AtomicU64,
    too_slow: AtomicBool,
    too_large: AtomicBool,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BodyError {
    /// Too few bytes came in time.
    #[error("the request body came too slowly")]
    TooSlow,
    /// More bytes came than were allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// The client went away, or sent what is not HTTP.
    #[error("the request body ended early: {0}")]
    Broken(#[from] BoxError),
}

impl RequestBody {
    /// Bounds the body of `request`. One that is empty has no fate.
    pub(crate) fn of(request: Request<Received>, timeout: Duration) -> (Request<Self>, Option<Arc<Fate>>) {
        if request.body().is_end_stream() {
            return (request.map(|_| Self::default()), None);
        }
        let fate = Arc::new(Fate::default());
        let drains = request.version() < Version::HTTP_2 && !request.headers().contains_key(header::EXPECT);
        let bound = |body| Content {
            body: Some(body),
            patience: Patience::new(timeout),
            room: None,
            fate: Arc::clone(&fate),
            drains,
        };
        let request = request.map(|body| Self(Some(Box::new(bound(body)))));
        (request, Some(fate))
    }

    /// Bounds its length, in bytes: one that is longer ends with [`BodyError::TooLarge`].
    pub(crate) fn bound(&mut self, max: u64) {
        if let Some(content) = &mut self.0 {
            content.room = Some(max);
        }
    }

    /// What has not been handed over.
    fn rest(&self) -> Option<&Received> {
        self.0.as_ref()?.body.as_ref()
    }
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let allowed = self.came(&frame);
                Poll::Ready(Some(allowed.map(|()| frame)))
            }
            Poll::Ready(end) => {
                self.drains = false;
                Poll::Ready(end.map(|error| Ok(error?)))
            }
            Poll::Pending => self.poll_patience(cx).map(|error| Some(Err(error))),
        }
    }

    /// Waits for bytes, but not for ever.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        ready!(self.patience.poll_end(cx));
        self.fate.too_slow.store(true, Relaxed);
        self.drains = false;
        Poll::Ready(BodyError::TooSlow)
    }

    /// Notes what came, and whether it was allowed to.
    fn came(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let count = frame.data_ref().map_or(0, |data| data.remaining() as u64);
        self.patience.moved(count);
        self.fate.received.fetch_add(count, Relaxed);
        if let Some(room) = self.room {
            self.room = Some(room.checked_sub(count).ok_or_else(|| self.too_large())?);
        }
        Ok(())
    }

    fn too_large(&self) -> BodyError {
        self.fate.too_large.store(true, Relaxed);
        BodyError::TooLarge
    }
}

impl Fate {
    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Whether the body was given up because it is too large.
    pub(crate) fn too_large(&self) -> bool {
        self.too_large.load(Relaxed)
    }

    /// Whether the body was given up because it came too slowly.
    pub(crate) fn too_slow(&self) -> bool {
        self.too_slow.load(Relaxed)
    }
}

/// 413, for a body that is too large.
pub(crate) fn too_large() -> Response<Bytes> {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large")
        .detail("the body is larger than --max-body-size allows")
        .to_response()
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |content| content.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.rest().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| self.drains && !body.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAIN, drain(rest)));
        }
    }
}

async fn drain(mut body: Received) {
    while let Some(Ok(_)) = body.frame().await {}
}
