//! Reading a body from disk, whole or in sections.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use ifmatch_core::range::ByteRange;

use crate::body::on_disk::{DiskBody, PIECE};

/// A section of the output: given bytes, or a span of the file.
#[derive(Debug)]
pub(crate) enum BodySection {
    Bytes(Bytes),
    File(ByteSpan),
}

/// The bytes in `start..end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteSpan {
    start: u64,
    end: u64,
}

impl From<Bytes> for BodySection {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<ByteRange> for BodySection {
    fn from(range: ByteRange) -> Self {
        Self::File(ByteSpan {
            start: range.start(),
            end: range.end() + 1,
        })
    }
}

impl BodySection {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(span) => span.end - span.start,
        }
    }
}

/// Reads a piece. Returns its bytes, and the memory for the next one.
type PendingRead = Pin<Box<dyn Future<Output = io::Result<(Bytes, BytesMut)>> + Send>>;

/// Reads a file piece by piece.
pub(crate) struct DiskReader {
    body: Arc<DiskBody>,
    /// Sections still to be read.
    sections: VecDeque<BodySection>,
    /// The last piece, if the next section also needs it.
    last: Option<Bytes>,
    trailers: Option<HeaderMap>,
    file: Arc<File>,
    /// The memory for pieces.
    buffer: BytesMut,
    /// The piece being read.
    reading: Option<(usize, PendingRead)>,
}

impl DiskReader {
    /// Creates a reader of the whole body. Returns `None` if the file is gone.
    pub(crate) fn new(body: &Arc<DiskBody>) -> Option<Self> {
        let len = body.len();
        let all = (len > 0).then_some(BodySection::File(ByteSpan { start: 0, end: len }));
        let reader = Self::of(body, all.into_iter().collect())?;
        Some(Self {
            trailers: body.trailers(),
            ..reader
        })
    }

    /// Creates a reader of some sections. Returns `None` if the file is gone.
    pub(crate) fn of(body: &Arc<DiskBody>, sections: VecDeque<BodySection>) -> Option<Self> {
        Some(Self::with_file(body, body.open()?, sections))
    }

    /// Creates a reader of the bytes in `start..end`, which must have been written.
    pub(crate) fn between(body: &Arc<DiskBody>, file: &Arc<File>, start: u64, end: u64) -> Self {
        let sections = VecDeque::from([BodySection::File(ByteSpan { start, end })]);
        Self::with_file(body, Arc::clone(file), sections)
    }

    fn with_file(body: &Arc<DiskBody>, file: Arc<File>, sections: VecDeque<BodySection>) -> Self {
        Self {
            body: Arc::clone(body),
            sections,
            last: None,
            trailers: None,
            file,
            buffer: BytesMut::new(),
            reading: None,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some((piece, reading)) = &mut self.reading {
            let piece = *piece;
            let read = ready!(reading.as_mut().poll(cx));
            self.reading = None;
            return Poll::Ready(Some(match read {
                Ok((bytes, buffer)) => {
                    self.buffer = buffer;
                    Ok(Frame::data(self.cut(piece, bytes)))
                }
                Err(error) => {
                    self.sections.clear();
                    self.trailers = None;
                    Err(error)
                }
            }));
        }
        let piece = match self.sections.front() {
            None => return Poll::Ready(self.trailers.take().map(Frame::trailers).map(Ok)),
            Some(BodySection::Bytes(bytes)) => {
                let bytes = bytes.clone();
                self.sections.pop_front();
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Some(BodySection::File(span)) => span.piece(),
        };
        if let Some(bytes) = self.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.cut(piece, bytes)))));
        }
        self.reading = Some((
            piece,
            Box::pin(
                self.body
                    .read(&self.file, piece, mem::take(&mut self.buffer)),
            ),
        ));
        self.poll_frame(cx)
    }

    /// Returns the number of bytes still to be read.
    pub(crate) fn left(&self) -> u64 {
        self.sections.iter().map(BodySection::len).sum()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.sections.is_empty() && self.trailers.is_none()
    }

    /// Takes the next section's bytes from a piece. The rest of the section, if any, becomes the next section.
    fn cut(&mut self, piece: usize, bytes: Bytes) -> Bytes {
        let Some(BodySection::File(span)) = self.sections.pop_front() else {
            return Bytes::new();
        };
        let skip = usize::try_from(span.start % PIECE as u64).unwrap_or_default();
        let wanted = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
        let cut = bytes.slice(skip.min(bytes.len())..bytes.len().min(skip.saturating_add(wanted)));
        let rest = ByteSpan {
            start: span.start + cut.len() as u64,
            ..span
        };
        if rest.start < rest.end {
            self.sections.push_front(BodySection::File(rest));
        }
        let mut spans = self.sections.iter().filter_map(|section| match section {
            BodySection::File(span) => Some(span.piece()),
            BodySection::Bytes(_) => None,
        });
        self.last = spans.next().filter(|next| *next == piece).map(|_| bytes);
        cut
    }
}

impl ByteSpan {
    /// Returns the piece in which the span begins.
    fn piece(self) -> usize {
        usize::try_from(self.start / PIECE as u64).unwrap_or(usize::MAX)
    }
}
