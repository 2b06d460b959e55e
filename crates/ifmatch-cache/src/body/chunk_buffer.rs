//! A buffer for a growing body. Small chunks are merged into blocks, so they take little more memory than their
//! bytes.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Shorter chunks are merged.
const SMALL: usize = 4 * 1024;
/// Maximum length of a block of merged chunks.
const BLOCK: usize = 4 * SMALL;

/// The bytes of a body from some position to the last byte received.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer {
    /// Complete blocks with their positions.
    full: VecDeque<(u64, Bytes)>,
    /// The block that small chunks are appended to. It ends where the body ends.
    last: BytesMut,
    end: u64,
}

impl ChunkBuffer {
    /// Appends bytes.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let len = chunk.len();
        if len >= SMALL || self.last.len() + len > BLOCK {
            self.close();
        }
        if len >= SMALL {
            self.full.push_back((self.end, chunk));
        } else {
            self.last.extend_from_slice(&chunk);
        }
        self.end += len as u64;
    }

    /// Creates a buffer without bytes, which ends at this position.
    pub(crate) fn ended_at(end: u64) -> Self {
        Self {
            end,
            ..Self::default()
        }
    }

    /// Returns the position of the first byte in the buffer.
    pub(crate) fn start(&self) -> u64 {
        self.full
            .front()
            .map_or_else(|| self.last_start(), |(start, _)| *start)
    }

    /// Returns the position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns some bytes from a position on. Returns `None` if they were released or haven't arrived.
    pub(crate) fn from(&self, position: u64) -> Option<Bytes> {
        let cut = |start: u64| usize::try_from(position - start).unwrap_or(usize::MAX);
        if position >= self.last_start() {
            let bytes = self
                .last
                .get(cut(self.last_start())..)
                .filter(|bytes| !bytes.is_empty());
            return bytes.map(Bytes::copy_from_slice);
        }
        let after = self.full.partition_point(|(start, _)| *start <= position);
        let (start, block) = self.full.get(after.checked_sub(1)?)?;
        Some(block.slice(cut(*start)..))
    }

    /// Returns all bytes in the buffer.
    pub(crate) fn all(&self) -> VecDeque<Bytes> {
        let mut all: VecDeque<Bytes> = self.full.iter().map(|(_, block)| block.clone()).collect();
        all.extend(self.from(self.last_start()));
        all
    }

    /// Releases the blocks that end at or before a position.
    pub(crate) fn release(&mut self, position: u64) {
        while self
            .full
            .front()
            .is_some_and(|(start, block)| start + block.len() as u64 <= position)
        {
            self.full.pop_front();
        }
        if self.full.is_empty() && position >= self.end {
            self.last.clear();
        }
    }

    fn last_start(&self) -> u64 {
        self.end - self.last.len() as u64
    }

    fn close(&mut self) {
        if !self.last.is_empty() {
            let start = self.last_start();
            self.full
                .push_back((start, std::mem::take(&mut self.last).freeze()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes from a position on, in one piece.
    fn rest(blocks: &ChunkBuffer, mut position: u64) -> Vec<u8> {
        let mut rest = Vec::new();
        while let Some(bytes) = blocks.from(position) {
            position += bytes.len() as u64;
            rest.extend_from_slice(&bytes);
        }
        rest
    }

    #[test]
    fn bytes_are_found_by_position_for_any_chunk_sizes() {
        let mut blocks = ChunkBuffer::default();
        let mut expected = Vec::new();
        for (round, len) in [1, 1, SMALL, 0, 3, SMALL - 1, SMALL - 1, BLOCK, 2]
            .into_iter()
            .cycle()
            .take(40)
            .enumerate()
        {
            let chunk = vec![u8::try_from(round).unwrap(); len];
            expected.extend_from_slice(&chunk);
            blocks.push(chunk.into());
        }
        assert_eq!(blocks.end(), expected.len() as u64);
        for position in (0..expected.len()).step_by(577) {
            assert_eq!(
                rest(&blocks, position as u64),
                expected[position..],
                "from {position}"
            );
        }
        assert_eq!(
            blocks.all().into_iter().flatten().collect::<Vec<_>>(),
            expected
        );
        assert!(blocks.from(blocks.end()).is_none() && blocks.from(blocks.end() + 1).is_none());
    }

    #[test]
    fn small_chunks_share_a_block() {
        let mut blocks = ChunkBuffer::default();
        (0..100_000).for_each(|_| blocks.push(Bytes::from_static(b"x")));
        assert_eq!(blocks.all().len(), 100_000_usize.div_ceil(BLOCK));
    }

    #[test]
    fn released_bytes_are_dropped_and_the_rest_remains() {
        let mut blocks = ChunkBuffer::default();
        blocks.push(vec![1; SMALL].into());
        blocks.push(vec![2; SMALL].into());
        blocks.push(Bytes::from_static(b"end"));
        blocks.release(SMALL as u64 + 1);
        assert_eq!(blocks.start(), SMALL as u64);
        assert!(blocks.from(0).is_none());
        assert_eq!(rest(&blocks, 2 * SMALL as u64 - 1), b"\x02end");
        blocks.release(blocks.end());
        assert_eq!(blocks.start(), blocks.end());
        blocks.push(Bytes::from_static(b"more"));
        assert_eq!(rest(&blocks, 2 * SMALL as u64 + 3), b"more");
    }
}
