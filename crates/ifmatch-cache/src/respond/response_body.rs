//! The body of a response: stored, still arriving, or the inner service's own.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::body::broadcast::{Reader, Stop};
use crate::body::disk_reader::DiskReader;
use crate::body::in_memory::MemoryBody;

/// The error of a body that ended early: the inner service's, or the cache's own.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response from the cache.
///
/// Stored bodies are not copied. A body that ends early or differs from its declared length ends with an error.
pub struct ResponseBody<B> {
    kind: Kind<B>,
}

/// Requests the rest of a body, given a position and the length of the body if it is known.
type Resume<B> = Mutex<Box<dyn FnOnce(u64, Option<u64>) -> RestFuture<B> + Send>>;
type RestFuture<B> = Pin<Box<dyn Future<Output = Result<B, BodyError>> + Send>>;

/// Large variants are boxed, since responses from memory do not need them.
enum Kind<B> {
    Inner { body: Pin<Box<B>> },
    Chunks { chunks: VecDeque<Bytes> },
    Memory { content: Arc<MemoryBody>, next: usize },
    Broadcast { reader: Reader, resume: Option<Resume<B>> },
    Rest { future: Mutex<RestFuture<B>> },
    File { reader: Box<DiskReader> },
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body: Box::pin(body) } }
    }

    pub(crate) fn chunks(chunks: VecDeque<Bytes>) -> Self {
        Self { kind: Kind::Chunks { chunks } }
    }

    pub(crate) fn content(content: Arc<MemoryBody>) -> Self {
        Self { kind: Kind::Memory { content, next: 0 } }
    }

    pub(crate) fn broadcast(reader: Reader) -> Self {
        Self { kind: Kind::Broadcast { reader, resume: None } }
    }

    /// Sets the function that requests the rest of the body if its reader falls behind.
    pub(crate) fn resumed_by(mut self, ask: impl FnOnce(u64, Option<u64>) -> RestFuture<B> + Send + 'static) -> Self {
        if let Kind::Broadcast { reader, resume } = &mut self.kind {
            reader.can_resume();
            *resume = Some(Mutex::new(Box::new(ask)));
        }
        self
    }

    /// Returns `true` if the body is still arriving.
    pub(crate) fn is_broadcast(&self) -> bool {
        matches!(self.kind, Kind::Broadcast { .. })
    }

    pub(crate) fn file(reader: DiskReader) -> Self {
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
            Kind::Memory { .. } => "memory",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Rest { .. } => "rest",
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
            Kind::Memory { content, next } => {
                let at = *next;
                *next += 1;
                let trailers = || content.trailers.clone().filter(|_| at == content.chunks.len());
                let data = content.chunks.get(at).cloned().map(Frame::data);
                Poll::Ready(data.or_else(|| trailers().map(Frame::trailers)).map(Ok))
            }
            Kind::File { reader } => {
                reader.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Kind::Broadcast { reader, resume } => {
                let position = match ready!(reader.poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Some(Err(Stop::Broken(why))) => return Poll::Ready(Some(Err(why.into()))),
                    Some(Err(Stop::Behind(position))) => position,
                };
                let Some(resume) = resume.take() else {
                    return Poll::Ready(Some(Err(
                        "the client read too slowly: the next bytes are no longer kept, and cannot be requested again"
                            .into(),
                    )));
                };
                let resume = resume.into_inner().unwrap_or_else(PoisonError::into_inner);
                self.kind = Kind::Rest { future: Mutex::new(resume(position, reader.declared())) };
                self.poll_frame(cx)
            }
            Kind::Rest { future } => {
                let future = future.get_mut().unwrap_or_else(PoisonError::into_inner);
                match ready!(future.as_mut().poll(cx)) {
                    Ok(body) => {
                        self.kind = Kind::Inner { body: Box::pin(body) };
                        self.poll_frame(cx)
                    }
                    Err(error) => {
                        self.kind = Kind::Chunks { chunks: VecDeque::new() };
                        Poll::Ready(Some(Err(error)))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Chunks { chunks } => chunks.is_empty(),
            Kind::Memory { content, next } => *next >= content.chunks.len() + usize::from(content.trailers.is_some()),
            Kind::Broadcast { reader, .. } => reader.is_at_end(),
            Kind::Rest { .. } => false,
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
            Kind::Memory { content, next } => exact(&mut content.chunks.iter().skip(*next)),
            Kind::File { reader } => SizeHint::with_exact(reader.left()),
            Kind::Rest { .. } => SizeHint::default(),
            Kind::Broadcast { reader, .. } => reader.left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// Converts a frame of any data to one of bytes.
pub(crate) fn as_bytes<D: Buf, E: Into<BodyError>>(
    frame: Option<Result<Frame<D>, E>>,
) -> Option<Result<Frame<Bytes>, BodyError>> {
    frame.map(|frame| match frame {
        Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
        Err(error) => Err(error.into()),
    })
}
