//! The response body: the inner service's own, or one that was buffered.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// Response body of [`ConditionalService`](crate::ConditionalService).
    ///
    /// It's the inner service's body, passed on frame by frame; a body that was buffered to hash it; or the buffered
    /// start of a body that proved too long, followed by the rest.
    ///
    /// ```
    /// use http::Response;
    /// use http_body_util::BodyExt;
    /// use ifmatch::ResponseBody;
    ///
    /// async fn text(response: Response<ResponseBody<String>>) -> Vec<u8> {
    ///     response.into_body().collect().await.unwrap_or_default().to_bytes().to_vec()
    /// }
    /// ```
    pub struct ResponseBody<B: Body> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    /// Where the frames come from.
    #[project = KindProjection]
    enum BodyKind<B: Body> {
        Inner { #[pin] body: B },
        Buffered { content: BufferedBody },
        Replay { read: VecDeque<Bytes>, rest: BodyRest<B> },
    }
}

/// A body that was read to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferedBody {
    pub(crate) chunks: VecDeque<Bytes>,
    /// Boxed because they are rare.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl BufferedBody {
    /// Returns the remaining length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }
}

impl From<Bytes> for BufferedBody {
    fn from(bytes: Bytes) -> Self {
        Self {
            chunks: VecDeque::from([bytes]),
            trailers: None,
        }
    }
}

/// The continuation of a partly read body.
pub(crate) enum BodyRest<B: Body> {
    Body(Pin<Box<B>>),
    /// The error that ends the body, until it is returned.
    Error(Option<B::Error>),
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: BodyKind::Inner { body },
        }
    }

    pub(crate) fn buffered(content: impl Into<BufferedBody>) -> Self {
        Self {
            kind: BodyKind::Buffered {
                content: content.into(),
            },
        }
    }

    pub(crate) fn replay(read: VecDeque<Bytes>, rest: BodyRest<B>) -> Self {
        Self {
            kind: BodyKind::Replay { read, rest },
        }
    }

    pub(crate) fn empty() -> Self {
        Self::buffered(BufferedBody::default())
    }

    /// Returns the inner service's body if the layer has read none of it. For servers that can pass it on more cheaply
    /// than frame by frame.
    pub fn inner_mut(&mut self) -> Option<&mut B> {
        match &mut self.kind {
            BodyKind::Inner { body } => Some(body),
            BodyKind::Buffered { .. } | BodyKind::Replay { .. } => None,
        }
    }
}

impl<B: Body> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            BodyKind::Inner { .. } => "inner",
            BodyKind::Buffered { .. } => "buffered",
            BodyKind::Replay { .. } => "replay",
        };
        f.debug_struct("ResponseBody")
            .field("kind", &kind)
            .finish_non_exhaustive()
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Inner { body } => body.poll_frame(cx).map(as_bytes),
            KindProjection::Buffered { content } => {
                let data = content.chunks.pop_front().map(Frame::data);
                Poll::Ready(
                    data.or_else(|| {
                        content
                            .trailers
                            .take()
                            .map(|trailers| Frame::trailers(*trailers))
                    })
                    .map(Ok),
                )
            }
            KindProjection::Replay { read, rest } => match (read.pop_front(), rest) {
                (Some(chunk), _) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                (None, BodyRest::Body(body)) => body.as_mut().poll_frame(cx).map(as_bytes),
                (None, BodyRest::Error(error)) => Poll::Ready(error.take().map(Err)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } => body.is_end_stream(),
            BodyKind::Buffered { content } => content.trailers.is_none() && content.len() == 0,
            BodyKind::Replay {
                read,
                rest: BodyRest::Body(body),
            } => read.is_empty() && body.is_end_stream(),
            BodyKind::Replay {
                read,
                rest: BodyRest::Error(error),
            } => read.is_empty() && error.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } => body.size_hint(),
            BodyKind::Buffered { content } => SizeHint::with_exact(content.len()),
            BodyKind::Replay { read, rest } => {
                let read: u64 = read.iter().map(|chunk| chunk.len() as u64).sum();
                let mut hint = SizeHint::new();
                if let BodyRest::Body(body) = rest {
                    let rest = body.size_hint();
                    if let Some(upper) = rest.upper() {
                        hint.set_upper(read.saturating_add(upper));
                    }
                    hint.set_lower(read.saturating_add(rest.lower()));
                } else {
                    hint.set_lower(read);
                }
                hint
            }
        }
    }
}

/// Converts the data of a frame to `Bytes`, without a copy if they are `Bytes` already.
pub(crate) fn as_bytes<D: Buf, E>(
    frame: Option<Result<Frame<D>, E>>,
) -> Option<Result<Frame<Bytes>, E>> {
    frame.map(|frame| {
        frame.map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
    })
}
