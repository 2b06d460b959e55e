//! The body of an answer: stored, on its way from the origin, or the inner service's own.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::content::Content;
use crate::file_reader::FileReader;
use crate::flow::Reader;

/// Why a body ended early: the inner service's error, or the cache's own.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response that went through the cache.
///
/// Stored bodies are not copied. A body that ends early, or has not the length that was promised, ends with an error.
pub struct ResponseBody<B> {
    kind: Kind<B>,
}

/// The large ones are boxed: an answer from memory is moved often, and needs none of them.
enum Kind<B> {
    Inner { body: Pin<Box<B>> },
    Chunks { chunks: VecDeque<Bytes> },
    Content { content: Arc<Content>, next: usize },
    Flow { reader: Reader },
    File { reader: Box<FileReader> },
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body: Box::pin(body) } }
    }

    pub(crate) fn chunks(chunks: VecDeque<Bytes>) -> Self {
        Self { kind: Kind::Chunks { chunks } }
    }

    pub(crate) fn content(content: Arc<Content>) -> Self {
        Self { kind: Kind::Content { content, next: 0 } }
    }

    pub(crate) fn flow(reader: Reader) -> Self {
        Self { kind: Kind::Flow { reader } }
    }

    pub(crate) fn file(reader: FileReader) -> Self {
        Self { kind: Kind::File { reader: Box::new(reader) } }
    }

    pub(crate) fn empty() -> Self {
        Self::chunks(VecDeque::new())
    }
}

impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<B> From<Bytes> for ResponseBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::chunks(VecDeque::from([bytes]))
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Inner { .. } => "inner",
            Kind::Chunks { .. } => "chunks",
            Kind::Content { .. } => "content",
            Kind::Flow { .. } => "flow",
            Kind::File { .. } => "file",
        };
        f.debug_struct("ResponseBody").field("kind", &kind).finish_non_exhaustive()
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.kind {
            Kind::Inner { body } => body.as_mut().poll_frame(cx).map(as_bytes),
            Kind::Chunks { chunks } => Poll::Ready(chunks.pop_front().map(Frame::data).map(Ok)),
            Kind::Content { content, next } => {
                let at = *next;
                *next += 1;
                let trailers = || content.trailers.clone().filter(|_| at == content.chunks.len());
                let data = content.chunks.get(at).cloned().map(Frame::data);
                Poll::Ready(data.or_else(|| trailers().map(Frame::trailers)).map(Ok))
            }
            Kind::File { reader } => {
                reader.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Kind::Flow { reader } => {
                reader.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(BodyError::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Chunks { chunks } => chunks.is_empty(),
            Kind::Content { content, next } => *next >= content.chunks.len() + usize::from(content.trailers.is_some()),
            Kind::Flow { reader } => reader.is_at_end(),
            Kind::File { reader } => reader.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let exact = |chunks: &mut dyn Iterator<Item = &Bytes>| {
            SizeHint::with_exact(chunks.map(|chunk| chunk.len() as u64).sum())
        };
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Chunks { chunks } => exact(&mut chunks.iter()),
            Kind::Content { content, next } => exact(&mut content.chunks.iter().skip(*next)),
            Kind::File { reader } => SizeHint::with_exact(reader.left()),
            Kind::Flow { reader } => reader.left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// A frame of any data as one of bytes.
pub(crate) fn as_bytes<D: Buf, E: Into<BodyError>>(
    frame: Option<Result<Frame<D>, E>>,
) -> Option<Result<Frame<Bytes>, BodyError>> {
    frame.map(|frame| match frame {
        Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
        Err(error) => Err(error.into()),
    })
}
