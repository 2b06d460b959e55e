//! Bodies in memory: complete ones and parts.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use ifmatch_core::range::ByteRange;

use crate::body::budget::ByteBudget;
use crate::body::held::{MemoryHold, MemoryHolds};
use crate::policy::content_range::ContentRange;

/// Maximum size of one allocation of a body.
const PIECE: usize = 512 * 1024;
/// Appended bytes are merged with the last chunk up to this size.
const SHORT: usize = 64 * 1024;
/// Maximum number of pieces in a part.
const MAX_PIECES: usize = 64;
/// Approximate overhead of a piece, in bytes.
const PER_PIECE: u64 = 256;

/// A complete body.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryBody {
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) len: u64,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) holds: MemoryHolds,
}

impl MemoryBody {
    /// Limits the memory that readers keep after an eviction to this budget, which all bodies share.
    pub(crate) fn held_within(self, budget: &ByteBudget) -> Self {
        Self {
            holds: MemoryHolds::within(budget),
            ..self
        }
    }

    /// Copies the chunks, which may be slices of much larger buffers.
    pub(crate) fn compact(chunks: &VecDeque<Bytes>, trailers: Option<HeaderMap>) -> Self {
        let mut left: usize = chunks.iter().map(Bytes::len).sum();
        let len = left as u64;
        let mut pieces = Vec::with_capacity(left.div_ceil(PIECE));
        let mut piece = BytesMut::with_capacity(left.min(PIECE));
        for chunk in chunks {
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(rest.len().min(PIECE - piece.len()));
                piece.extend_from_slice(head);
                rest = tail;
                left -= head.len();
                if piece.len() == PIECE || left == 0 {
                    pieces.push(
                        std::mem::replace(&mut piece, BytesMut::with_capacity(left.min(PIECE)))
                            .freeze(),
                    );
                }
            }
        }
        Self {
            chunks: pieces,
            len,
            trailers,
            holds: MemoryHolds::default(),
        }
    }

    /// Appends bytes. Small chunks are merged.
    fn append(&mut self, chunks: VecDeque<Bytes>) {
        for chunk in chunks {
            self.len += chunk.len() as u64;
            match self.chunks.last_mut() {
                Some(last) if last.len() + chunk.len() <= SHORT => {
                    *last = [&last[..], &chunk[..]].concat().into();
                }
                _ => self.chunks.push(chunk),
            }
        }
    }

    /// Returns the bytes of a range without copying them.
    pub(crate) fn cut(&self, range: ByteRange) -> VecDeque<Bytes> {
        cut(&self.chunks, range.start(), range.len())
    }
}

/// Some of the bytes of a body with a known length. The pieces are in order and don't touch.
#[derive(Clone, Debug)]
pub(crate) struct PartialBody {
    pub(crate) total: u64,
    /// Maximum number of bytes kept.
    limit: u64,
    pieces: Vec<(u64, MemoryBody)>,
}

impl PartialBody {
    pub(crate) fn new(range: ContentRange, content: MemoryBody, limit: u64) -> Self {
        Self {
            total: range.total,
            limit,
            pieces: vec![(range.bytes.start(), content)],
        }
    }

    /// Returns the approximate size in memory.
    pub(crate) fn size(&self) -> u64 {
        self.len() + self.pieces.len() as u64 * PER_PIECE
    }

    /// Returns the bytes of a range, if all are present.
    pub(crate) fn cut(&self, range: ByteRange) -> Option<VecDeque<Bytes>> {
        let holds = |start: u64, content: &MemoryBody| {
            start <= range.start() && range.end() < start + content.len
        };
        let (start, content) = self
            .pieces
            .iter()
            .find(|(start, content)| holds(*start, content))?;
        Some(cut(&content.chunks, range.start() - start, range.len()))
    }

    /// Permits a reader to keep the parts, unless too much memory is held already.
    pub(crate) fn hold(&self) -> Option<Vec<MemoryHold>> {
        self.pieces
            .iter()
            .map(|(_, content)| content.hold())
            .collect()
    }

    /// Returns the missing range, if there is exactly one and the whole fits within the limit.
    pub(crate) fn missing(&self) -> Option<ByteRange> {
        if self.total > self.limit {
            return None;
        }
        let mut position = 0;
        let mut gaps = Vec::new();
        for (start, content) in &self.pieces {
            if *start > position {
                gaps.push((position, start - 1));
            }
            position = start + content.len;
        }
        if position < self.total {
            gaps.push((position, self.total - 1));
        }
        match gaps[..] {
            [(first, last)] => ByteRange::new(first, last),
            _ => None,
        }
    }

    /// Joins both; `newer` is one piece of the same representation. Drops excess pieces, the farthest from the new one
    /// first. Returns `None` if the totals differ.
    pub(crate) fn join(&self, newer: &Self) -> Option<Self> {
        let [(new, _)] = &newer.pieces[..] else {
            return None;
        };
        if self.total != newer.total {
            return None;
        }
        let mut all: Vec<(u64, MemoryBody)> =
            self.pieces.iter().chain(&newer.pieces).cloned().collect();
        all.sort_by_key(|(start, _)| *start);
        let mut pieces: Vec<(u64, MemoryBody)> = Vec::with_capacity(all.len());
        for (start, content) in all {
            match pieces.last_mut() {
                Some((first, before)) if start <= *first + before.len => {
                    let known = *first + before.len - start;
                    if known < content.len {
                        before.append(cut(&content.chunks, known, content.len - known));
                    }
                }
                _ => pieces.push((start, content)),
            }
        }
        let mut joined = Self {
            total: self.total,
            limit: newer.limit,
            pieces,
        };
        joined.shrink_around(*new);
        let fits = joined.len() <= newer.limit;
        Some(if fits { joined } else { newer.clone() })
    }

    /// Returns the whole body once it is complete.
    pub(crate) fn whole(&self) -> Option<Arc<MemoryBody>> {
        match &self.pieces[..] {
            [(0, content)] if content.len == self.total => Some(Arc::new(content.clone())),
            _ => None,
        }
    }

    /// Returns the number of bytes present.
    fn len(&self) -> u64 {
        self.pieces.iter().map(|(_, content)| content.len).sum()
    }

    /// Drops pieces from both ends, except the one with this position, until the rest is within the limits.
    fn shrink_around(&mut self, position: u64) {
        while self.pieces.len() > 1 && (self.pieces.len() > MAX_PIECES || self.len() > self.limit) {
            let distance = |(start, _): &(u64, MemoryBody)| start.abs_diff(position);
            let (first, last) = (
                self.pieces.first().map_or(0, distance),
                self.pieces.last().map_or(0, distance),
            );
            // The piece with this position may begin before it.
            let keeps_first = self
                .pieces
                .get(1)
                .is_some_and(|(start, _)| *start > position);
            if keeps_first
                || last > first
                    && self
                        .pieces
                        .last()
                        .is_some_and(|(start, _)| *start > position)
            {
                self.pieces.pop();
            } else {
                self.pieces.remove(0);
            }
        }
    }
}

fn cut(chunks: &[Bytes], mut skip: u64, mut left: u64) -> VecDeque<Bytes> {
    let slice = |chunk: &Bytes| {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(chunk.len() - start);
        skip -= start as u64;
        left -= len as u64;
        (len > 0).then(|| chunk.slice(start..start + len))
    };
    chunks.iter().filter_map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &'static str) -> MemoryBody {
        MemoryBody::compact(&VecDeque::from([Bytes::from_static(text.as_bytes())]), None)
    }

    fn part(first: u64, text: &'static str) -> PartialBody {
        let bytes = ByteRange::new(first, first + text.len() as u64 - 1).unwrap();
        PartialBody::new(ContentRange { bytes, total: 10 }, content(text), 10)
    }

    /// Returns a part of a body of 1,000,000 bytes, with a limit of 1,000.
    fn long(first: u64, len: usize) -> PartialBody {
        let bytes = ByteRange::new(first, first + len as u64 - 1).unwrap();
        let content = MemoryBody::compact(&VecDeque::from([Bytes::from(vec![7; len])]), None);
        PartialBody::new(
            ContentRange {
                bytes,
                total: 1_000_000,
            },
            content,
            1_000,
        )
    }

    fn holds(part: &PartialBody, first: u64, last: u64) -> bool {
        part.cut(ByteRange::new(first, last).unwrap()).is_some()
    }

    fn text(chunks: VecDeque<Bytes>) -> String {
        String::from_utf8(chunks.into_iter().flatten().collect()).unwrap()
    }

    #[test]
    fn parts_that_touch_or_overlap_become_one() {
        let joined = part(2, "cde").join(&part(4, "efg")).unwrap();
        assert_eq!(
            text(joined.cut(ByteRange::new(2, 6).unwrap()).unwrap()),
            "cdefg"
        );
        assert!(joined.cut(ByteRange::new(1, 3).unwrap()).is_none());
        assert_eq!(joined.missing(), None, "two gaps");
        let joined = joined.join(&part(0, "ab")).unwrap();
        assert_eq!(joined.missing(), ByteRange::new(7, 9));
        assert!(joined.whole().is_none());
        let whole = joined.join(&part(7, "hij")).unwrap().whole().unwrap();
        assert_eq!(text(whole.cut(ByteRange::new(0, 9).unwrap())), "abcdefghij");
    }

    #[test]
    fn parts_of_different_wholes_do_not_join() {
        let longer = PartialBody {
            total: 11,
            ..part(0, "ab")
        };
        assert!(part(2, "cd").join(&longer).is_none());
    }

    #[test]
    fn a_part_within_another_adds_no_bytes() {
        let joined = part(1, "bcdef").join(&part(2, "cd")).unwrap();
        assert_eq!(joined.len(), 5);
    }

    #[test]
    fn many_small_pieces_stay_few_and_the_newest_is_among_them() {
        let mut part = long(0, 1);
        for at in (1..10_000).map(|at| at * 7_919 % 10_000 * 100) {
            part = part.join(&long(at, 1)).unwrap();
            assert!(holds(&part, at, at), "the piece at {at} is new");
            assert!(
                part.pieces.len() <= MAX_PIECES
                    && part.size() <= MAX_PIECES as u64 * (PER_PIECE + 1)
            );
        }
    }

    #[test]
    fn the_pieces_farthest_from_the_newest_are_dropped() {
        let part = [0, 10_000, 20_000]
            .into_iter()
            .map(|at| long(at, 300))
            .reduce(|all, new| all.join(&new).unwrap())
            .unwrap();
        let near_the_end = part.join(&long(30_000, 300)).unwrap();
        assert!(
            !holds(&near_the_end, 0, 0) && holds(&near_the_end, 10_000, 10_299),
            "{near_the_end:?}"
        );
        let at_the_start = part.join(&long(300, 300)).unwrap();
        assert!(holds(&at_the_start, 0, 599) && holds(&at_the_start, 10_000, 10_299));
        assert!(!holds(&at_the_start, 20_000, 20_000));
    }

    #[test]
    fn joined_pieces_respect_the_limit() {
        let joined = long(0, 600).join(&long(600, 600)).unwrap();
        assert!(
            joined.len() == 600 && holds(&joined, 600, 1_199),
            "the newer ones stay"
        );
        let joined = long(0, 900)
            .join(&long(5_000, 90))
            .unwrap()
            .join(&long(900, 100))
            .unwrap();
        assert!(
            joined.len() == 1_000 && holds(&joined, 0, 999),
            "{joined:?}"
        );
    }

    #[test]
    fn a_body_longer_than_the_limit_is_not_completed() {
        assert!(part(0, "abcde").missing().is_some());
        assert!(
            PartialBody {
                limit: 9,
                ..part(0, "abcde")
            }
            .missing()
            .is_none()
        );
    }

    #[test]
    fn single_bytes_are_merged() {
        let joined = (0..1_000)
            .map(|at| long(at, 1))
            .reduce(|all, new| all.join(&new).unwrap())
            .unwrap();
        let [(0, content)] = &joined.pieces[..] else {
            panic!("{joined:?}")
        };
        assert_eq!((content.len, content.chunks.len()), (1_000, 1));
    }

    #[test]
    fn long_bodies_are_split_into_pieces() {
        let chunk = Bytes::from(vec![7_u8; 300 * 1024]);
        let content =
            MemoryBody::compact(&VecDeque::from([chunk.clone(), chunk.clone(), chunk]), None);
        assert_eq!(
            content.chunks.iter().map(Bytes::len).collect::<Vec<_>>(),
            [PIECE, 900 * 1024 - PIECE]
        );
        assert_eq!(content.len, 900 * 1024);
    }
}
