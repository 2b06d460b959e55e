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

use crate::body::broadcast::{BroadcastReader, ReaderStop};
use crate::body::disk_reader::DiskReader;
use crate::body::held::{EvictedBody, MemoryHold, MemoryReader};
use crate::body::in_memory::MemoryBody;

/// The error of a body that ended early: the inner service's, or the cache's own.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response from the cache.
///
/// Stored bodies aren't copied. A body that ends early or differs from its declared length ends with an error.
pub struct ResponseBody<B> {
    kind: ResponseBodyKind<B>,
}

/// Requests the rest of a body, given the number of bytes that were sent and the length of the body if it is known.
type ResumeFetch<B> = Mutex<Box<dyn FnOnce(u64, Option<u64>) -> RestFuture<B> + Send>>;
type RestFuture<B> = Pin<Box<dyn Future<Output = Result<B, BodyError>> + Send>>;

/// Large variants are boxed, since responses from memory don't need them.
enum ResponseBodyKind<B> {
    Inner {
        body: Pin<Box<B>>,
    },
    Chunks {
        chunks: VecDeque<Bytes>,
        _holds: Vec<MemoryHold>,
    },
    Memory {
        reader: MemoryReader,
        resume: Option<ResumeFetch<B>>,
    },
    Broadcast {
        reader: BroadcastReader,
        resume: Option<ResumeFetch<B>>,
    },
    Rest {
        future: Mutex<RestFuture<B>>,
    },
    File {
        reader: Box<DiskReader>,
        len: u64,
        resume: Option<ResumeFetch<B>>,
    },
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self {
            kind: ResponseBodyKind::Inner {
                body: Box::pin(body),
            },
        }
    }

    pub(crate) fn chunks(chunks: VecDeque<Bytes>) -> Self {
        Self::held_chunks(chunks, Vec::new())
    }

    /// Sends chunks of bodies that these permissions keep in memory.
    pub(crate) fn held_chunks(chunks: VecDeque<Bytes>, holds: Vec<MemoryHold>) -> Self {
        Self {
            kind: ResponseBodyKind::Chunks {
                chunks,
                _holds: holds,
            },
        }
    }

    pub(crate) fn content(content: &Arc<MemoryBody>) -> Self {
        Self::memory(MemoryReader::whole(content))
    }

    pub(crate) fn memory(reader: MemoryReader) -> Self {
        Self {
            kind: ResponseBodyKind::Memory {
                reader,
                resume: None,
            },
        }
    }

    pub(crate) fn broadcast(reader: BroadcastReader) -> Self {
        Self {
            kind: ResponseBodyKind::Broadcast {
                reader,
                resume: None,
            },
        }
    }

    /// Sets the function that requests the rest of the body if its reader falls behind, or if its file is damaged.
    pub(crate) fn resumed_by(
        mut self,
        ask: impl FnOnce(u64, Option<u64>) -> RestFuture<B> + Send + 'static,
    ) -> Self {
        match &mut self.kind {
            ResponseBodyKind::Broadcast { reader, resume } => {
                reader.can_resume();
                *resume = Some(Mutex::new(Box::new(ask)));
            }
            ResponseBodyKind::Memory { resume, .. } | ResponseBodyKind::File { resume, .. } => {
                *resume = Some(Mutex::new(Box::new(ask)));
            }
            ResponseBodyKind::Inner { .. }
            | ResponseBodyKind::Chunks { .. }
            | ResponseBodyKind::Rest { .. } => {}
        }
        self
    }

    /// Returns `true` if bytes may be gone when the client reads them: no longer kept for a slow client, or damaged on the disk.
    pub(crate) fn may_break_off(&self) -> bool {
        match &self.kind {
            ResponseBodyKind::Broadcast { .. } | ResponseBodyKind::File { .. } => true,
            ResponseBodyKind::Memory { reader, .. } => reader.is_borrowed(),
            ResponseBodyKind::Inner { .. }
            | ResponseBodyKind::Chunks { .. }
            | ResponseBodyKind::Rest { .. } => false,
        }
    }

    /// Continues with a request for the bytes that weren't sent.
    fn fall_behind(
        resume: Option<ResumeFetch<B>>,
        sent: u64,
        len: Option<u64>,
    ) -> Result<ResponseBodyKind<B>, BodyError> {
        let resume = resume
            .ok_or("the client read too slowly: the next bytes are no longer kept, and cannot be requested again")?;
        let resume = resume.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(ResponseBodyKind::Rest {
            future: Mutex::new(resume(sent, len)),
        })
    }

    pub(crate) fn file(reader: DiskReader) -> Self {
        Self {
            kind: ResponseBodyKind::File {
                len: reader.left(),
                reader: Box::new(reader),
                resume: None,
            },
        }
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
            ResponseBodyKind::Inner { .. } => "inner",
            ResponseBodyKind::Chunks { .. } => "chunks",
            ResponseBodyKind::Memory { .. } => "memory",
            ResponseBodyKind::Broadcast { .. } => "broadcast",
            ResponseBodyKind::Rest { .. } => "rest",
            ResponseBodyKind::File { .. } => "file",
        };
        f.debug_struct("ResponseBody")
            .field("kind", &kind)
            .finish_non_exhaustive()
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Error: Into<BodyError>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.kind {
            ResponseBodyKind::Inner { body } => body.as_mut().poll_frame(cx).map(as_bytes),
            ResponseBodyKind::Chunks { chunks, .. } => {
                Poll::Ready(chunks.pop_front().map(Frame::data).map(Ok))
            }
            ResponseBodyKind::Memory { reader, resume } => match reader.next() {
                None => Poll::Ready(None),
                Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(Err(EvictedBody)) => {
                    match Self::fall_behind(
                        resume.take(),
                        reader.sent(),
                        Some(reader.sent() + reader.left()),
                    ) {
                        Ok(rest) => self.kind = rest,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                    self.poll_frame(cx)
                }
            },
            ResponseBodyKind::File {
                reader,
                len,
                resume,
            } => {
                // A reader that fails has nothing left.
                let (len, sent) = (*len, *len - reader.left());
                match ready!(reader.poll_frame(cx)) {
                    None => Poll::Ready(None),
                    Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
                    Some(Err(damage)) => match resume.take() {
                        None => Poll::Ready(Some(Err(damage.into()))),
                        // The piece wasn't sent. The origin may still have this version.
                        resume => match Self::fall_behind(resume, sent, Some(len)) {
                            Ok(rest) => {
                                self.kind = rest;
                                self.poll_frame(cx)
                            }
                            Err(error) => Poll::Ready(Some(Err(error))),
                        },
                    },
                }
            }
            ResponseBodyKind::Broadcast { reader, resume } => {
                let position = match ready!(reader.poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Some(Err(ReaderStop::Broken(why))) => {
                        return Poll::Ready(Some(Err(why.into())));
                    }
                    Some(Err(ReaderStop::Behind(position))) => position,
                };
                match Self::fall_behind(resume.take(), position, reader.declared()) {
                    Ok(rest) => self.kind = rest,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
                self.poll_frame(cx)
            }
            ResponseBodyKind::Rest { future } => {
                let future = future.get_mut().unwrap_or_else(PoisonError::into_inner);
                match ready!(future.as_mut().poll(cx)) {
                    Ok(body) => {
                        self.kind = ResponseBodyKind::Inner {
                            body: Box::pin(body),
                        };
                        self.poll_frame(cx)
                    }
                    Err(error) => {
                        self.kind = Self::empty().kind;
                        Poll::Ready(Some(Err(error)))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseBodyKind::Inner { body } => body.is_end_stream(),
            ResponseBodyKind::Chunks { chunks, .. } => chunks.is_empty(),
            ResponseBodyKind::Memory { reader, .. } => reader.is_at_end(),
            ResponseBodyKind::Broadcast { reader, .. } => reader.is_at_end(),
            ResponseBodyKind::Rest { .. } => false,
            ResponseBodyKind::File { reader, .. } => reader.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseBodyKind::Inner { body } => body.size_hint(),
            ResponseBodyKind::Chunks { chunks, .. } => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
            ResponseBodyKind::Memory { reader, .. } => SizeHint::with_exact(reader.left()),
            ResponseBodyKind::File { reader, .. } => SizeHint::with_exact(reader.left()),
            ResponseBodyKind::Rest { .. } => SizeHint::default(),
            ResponseBodyKind::Broadcast { reader, .. } => reader
                .left()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
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
