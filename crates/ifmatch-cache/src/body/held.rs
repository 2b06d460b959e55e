//! Bodies in memory that clients are reading. An evicted body stays in memory while a client reads it, so the total of
//! such bodies is limited. Readers beyond the limit don't keep their body: they copy it piece by piece, and request the
//! rest from the origin if it is evicted in the meantime.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use http_body::Frame;
use ifmatch_core::range::ByteRange;

use crate::body::budget::{ByteBudget, ByteReservation};
use crate::body::in_memory::MemoryBody;

/// Maximum length of a body that any number of readers may keep. It counts as memory of the connection.
const SHORT: u64 = 64 * 1024;
/// Maximum length of a copy.
const PIECE: usize = 64 * 1024;

/// The memory that all readers of a body share. A clone is for another body, within the same budget.
#[derive(Debug, Default)]
pub(crate) struct MemoryHolds {
    /// `None` if it isn't limited.
    budget: Option<ByteBudget>,
    current: Mutex<Weak<ByteReservation>>,
}

impl MemoryHolds {
    /// Limits the memory to this budget, which all bodies share.
    pub(crate) fn within(budget: &ByteBudget) -> Self {
        Self {
            budget: Some(budget.clone()),
            current: Mutex::default(),
        }
    }
}

impl Clone for MemoryHolds {
    fn clone(&self) -> Self {
        Self {
            budget: self.budget.clone(),
            current: Mutex::default(),
        }
    }
}

/// Permission to keep a body in memory.
#[derive(Debug)]
pub(crate) struct MemoryHold {
    _reservation: Option<Arc<ByteReservation>>,
}

impl MemoryBody {
    /// Permits a reader to keep the body, unless too much memory is held already.
    pub(crate) fn hold(&self) -> Option<MemoryHold> {
        let Some(budget) = self.holds.budget.as_ref().filter(|_| self.len > SHORT) else {
            return Some(MemoryHold { _reservation: None });
        };
        let mut current = self
            .holds
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(reservation) = current.upgrade() {
            return Some(MemoryHold {
                _reservation: Some(reservation),
            });
        }
        let mut reservation = budget.reserve(self.len);
        if !reservation.cover(self.len) {
            return None;
        }
        let reservation = Arc::new(reservation);
        *current = Arc::downgrade(&reservation);
        Some(MemoryHold {
            _reservation: Some(reservation),
        })
    }

    /// Copies some bytes from a position on.
    pub(crate) fn copy(&self, position: u64) -> Option<Bytes> {
        BodyCursor::at(self, position, self.len)
            .take(self, PIECE)
            .map(|bytes| Bytes::copy_from_slice(&bytes))
    }
}

/// The body was evicted before the client had read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictedBody;

/// Reads a body in memory.
pub(crate) struct MemoryReader {
    source: BodySource,
    cursor: BodyCursor,
    /// Position of the first byte.
    start: u64,
    /// `true` if trailers follow.
    trailers: bool,
}

/// The body that a reader reads.
enum BodySource {
    Kept(
        Arc<MemoryBody>,
        #[expect(dead_code, reason = "keeps the memory reserved")] MemoryHold,
    ),
    /// Not kept: an eviction frees it.
    Borrowed(Weak<MemoryBody>),
}

impl MemoryReader {
    /// Creates a reader of the whole body.
    pub(crate) fn whole(content: &Arc<MemoryBody>) -> Self {
        let cursor = BodyCursor::at(content, 0, content.len);
        Self {
            cursor,
            start: 0,
            trailers: content.trailers.is_some(),
            source: BodySource::of(content),
        }
    }

    /// Creates a reader of a range.
    pub(crate) fn range(content: &Arc<MemoryBody>, range: ByteRange) -> Self {
        let cursor = BodyCursor::at(content, range.start(), range.end() + 1);
        Self {
            cursor,
            start: range.start(),
            trailers: false,
            source: BodySource::of(content),
        }
    }

    /// Returns `true` if the body may be evicted before it was read.
    pub(crate) fn is_borrowed(&self) -> bool {
        matches!(self.source, BodySource::Borrowed(_))
    }

    /// Returns the next frame.
    pub(crate) fn next(&mut self) -> Option<Result<Frame<Bytes>, EvictedBody>> {
        if self.is_at_end() {
            return None;
        }
        let borrowed;
        let (content, most) = match &self.source {
            BodySource::Kept(content, _) => (content, usize::MAX),
            BodySource::Borrowed(content) => {
                let Some(content) = content.upgrade() else {
                    return Some(Err(EvictedBody));
                };
                borrowed = content;
                (&borrowed, PIECE)
            }
        };
        let copies = self.is_borrowed();
        if let Some(bytes) = self.cursor.take(content, most) {
            let bytes = if copies {
                Bytes::copy_from_slice(&bytes)
            } else {
                bytes
            };
            return Some(Ok(Frame::data(bytes)));
        }
        self.trailers = false;
        content.trailers.clone().map(Frame::trailers).map(Ok)
    }

    /// Returns the number of bytes still to be read.
    pub(crate) fn left(&self) -> u64 {
        self.cursor.end - self.cursor.position
    }

    /// Returns the number of bytes that were read.
    pub(crate) fn sent(&self) -> u64 {
        self.cursor.position - self.start
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.left() == 0 && !self.trailers
    }
}

impl BodySource {
    fn of(content: &Arc<MemoryBody>) -> Self {
        match content.hold() {
            Some(hold) => Self::Kept(Arc::clone(content), hold),
            None => Self::Borrowed(Arc::downgrade(content)),
        }
    }
}

/// A position in a body.
struct BodyCursor {
    /// Index of the chunk.
    chunk: usize,
    /// Position within it.
    offset: usize,
    position: u64,
    end: u64,
}

impl BodyCursor {
    fn at(content: &MemoryBody, position: u64, end: u64) -> Self {
        let mut left = usize::try_from(position).unwrap_or(usize::MAX);
        let mut chunk = 0;
        while let Some(len) = content
            .chunks
            .get(chunk)
            .map(Bytes::len)
            .filter(|len| *len <= left)
        {
            left -= len;
            chunk += 1;
        }
        Self {
            chunk,
            offset: left,
            position,
            end,
        }
    }

    /// Returns the next bytes, at most this number.
    fn take(&mut self, content: &MemoryBody, most: usize) -> Option<Bytes> {
        let wanted = usize::try_from(self.end - self.position)
            .unwrap_or(usize::MAX)
            .min(most);
        let chunk = content.chunks.get(self.chunk).filter(|_| wanted > 0)?;
        let end = chunk.len().min(self.offset.saturating_add(wanted));
        let bytes = chunk.slice(self.offset..end);
        self.position += bytes.len() as u64;
        (self.chunk, self.offset) = if end == chunk.len() {
            (self.chunk + 1, 0)
        } else {
            (self.chunk, end)
        };
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const LEN: usize = 1_200_000;

    fn byte(at: usize) -> u8 {
        u8::try_from(at % 251).expect("a byte")
    }

    fn body(budget: &ByteBudget) -> Arc<MemoryBody> {
        let bytes: Vec<u8> = (0..LEN).map(byte).collect();
        let content = MemoryBody::compact(&VecDeque::from([bytes.into()]), None);
        Arc::new(content.held_within(budget))
    }

    fn read(mut reader: MemoryReader) -> Result<Vec<u8>, EvictedBody> {
        let mut all = Vec::new();
        while let Some(frame) = reader.next() {
            all.extend_from_slice(&frame?.into_data().expect("data"));
        }
        assert_eq!(reader.left(), 0);
        Ok(all)
    }

    #[test]
    fn kept_and_borrowed_bodies_are_read_alike() {
        for budget in [ByteBudget::of(4 * LEN as u64), ByteBudget::of(0)] {
            let body = body(&budget);
            assert_eq!(
                MemoryReader::whole(&body).is_borrowed(),
                !budget.reserve(u64::MAX).cover(LEN as u64)
            );
            assert!(read(MemoryReader::whole(&body)) == Ok((0..LEN).map(byte).collect()));
            for (start, end) in [
                (0, 0),
                (524_287, 524_288),
                (524_288, 1_048_575),
                (7, LEN - 1),
            ] {
                let range = ByteRange::new(start as u64, end as u64).expect("a range");
                assert!(
                    read(MemoryReader::range(&body, range))
                        == Ok((start..=end).map(byte).collect())
                );
            }
        }
    }

    #[test]
    fn readers_of_one_body_share_its_memory_and_further_bodies_are_borrowed() {
        let budget = ByteBudget::of(LEN as u64);
        let (first, second) = (body(&budget), body(&budget));
        let readers: Vec<_> = (0..9).map(|_| MemoryReader::whole(&first)).collect();
        assert!(!readers.iter().any(MemoryReader::is_borrowed));
        let mut other = MemoryReader::whole(&second);
        assert!(other.is_borrowed());
        drop((first, second));
        for reader in readers {
            assert!(
                read(reader) == Ok((0..LEN).map(byte).collect()),
                "it keeps the body"
            );
        }
        assert!(
            other.next().is_some_and(|frame| frame.is_err()),
            "it does not keep the body"
        );
        assert!(
            !MemoryReader::whole(&body(&budget)).is_borrowed(),
            "the memory was released"
        );
    }

    #[test]
    fn a_borrowed_body_is_copied_in_pieces() {
        let body = body(&ByteBudget::of(0));
        let mut reader = MemoryReader::whole(&body);
        let piece = reader
            .next()
            .expect("a frame")
            .expect("a body")
            .into_data()
            .expect("data");
        assert_eq!((piece.len(), reader.sent()), (PIECE, PIECE as u64));
        let chunk = body.chunks[0].as_ptr_range();
        assert!(!chunk.contains(&piece.as_ptr()), "it keeps no chunk");
    }
}
