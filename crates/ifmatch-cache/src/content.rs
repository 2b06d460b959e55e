//! The bytes of stored bodies: whole ones, and parts.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use ifmatch_core::range::ByteRange;

use crate::policy::content_range::ContentRange;

/// The largest piece of memory that a body is kept in.
const PIECE: usize = 512 * 1024;

/// A complete body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) len: u64,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Content {
    /// Copies the chunks into memory of their own: they may be slices of much larger buffers.
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
                    pieces.push(std::mem::replace(&mut piece, BytesMut::with_capacity(left.min(PIECE))).freeze());
                }
            }
        }
        Self { chunks: pieces, len, trailers }
    }

    /// The bytes of a range, without copying them.
    pub(crate) fn cut(&self, range: ByteRange) -> VecDeque<Bytes> {
        cut(&self.chunks, range.start(), range.len())
    }
}

/// Some of the bytes of a body whose length is known. The pieces are in order and do not touch.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) total: u64,
    pieces: Vec<(u64, Content)>,
}

impl Part {
    pub(crate) fn new(range: ContentRange, content: Content) -> Self {
        Self { total: range.total, pieces: vec![(range.bytes.start(), content)] }
    }

    /// The bytes that are there.
    pub(crate) fn size(&self) -> u64 {
        self.pieces.iter().map(|(_, content)| content.len).sum()
    }

    /// The bytes of a range, if all of them are there.
    pub(crate) fn cut(&self, range: ByteRange) -> Option<VecDeque<Bytes>> {
        let holds = |start: u64, content: &Content| start <= range.start() && range.end() < start + content.len;
        let (start, content) = self.pieces.iter().find(|(start, content)| holds(*start, content))?;
        Some(cut(&content.chunks, range.start() - start, range.len()))
    }

    /// The range that is missing, if it is a single one.
    pub(crate) fn missing(&self) -> Option<ByteRange> {
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

    /// Both together; `other` is the newer one, of the same representation. None: their totals differ.
    pub(crate) fn join(&self, other: &Self) -> Option<Self> {
        if self.total != other.total {
            return None;
        }
        let mut all: Vec<(u64, Content)> = self.pieces.iter().chain(&other.pieces).cloned().collect();
        all.sort_by_key(|(start, _)| *start);
        let mut joined: Vec<(u64, Content)> = Vec::new();
        for (start, content) in all {
            match joined.last_mut() {
                Some((first, before)) if start <= *first + before.len => {
                    let known = *first + before.len - start;
                    if known < content.len {
                        before.chunks.extend(cut(&content.chunks, known, content.len - known));
                        before.len += content.len - known;
                    }
                }
                _ => joined.push((start, content)),
            }
        }
        Some(Self { total: self.total, pieces: joined })
    }

    /// The whole body, once nothing is missing.
    pub(crate) fn whole(&self) -> Option<Arc<Content>> {
        match &self.pieces[..] {
            [(0, content)] if content.len == self.total => Some(Arc::new(content.clone())),
            _ => None,
        }
    }
}

fn cut(chunks: &[Bytes], mut skip: u64, mut left: u64) -> VecDeque<Bytes> {
    let slice = |chunk: &Bytes| {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len() - start);
        skip -= start as u64;
        left -= len as u64;
        (len > 0).then(|| chunk.slice(start..start + len))
    };
    chunks.iter().filter_map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &'static str) -> Content {
        Content::compact(&VecDeque::from([Bytes::from_static(text.as_bytes())]), None)
    }

    fn part(first: u64, text: &'static str) -> Part {
        let bytes = ByteRange::new(first, first + text.len() as u64 - 1).unwrap();
        Part::new(ContentRange { bytes, total: 10 }, content(text))
    }

    fn text(chunks: VecDeque<Bytes>) -> String {
        String::from_utf8(chunks.into_iter().flatten().collect()).unwrap()
    }

    #[test]
    fn parts_that_touch_or_overlap_become_one() {
        let joined = part(2, "cde").join(&part(4, "efg")).unwrap();
        assert_eq!(text(joined.cut(ByteRange::new(2, 6).unwrap()).unwrap()), "cdefg");
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
        let longer = Part { total: 11, ..part(0, "ab") };
        assert!(part(2, "cd").join(&longer).is_none());
    }

    #[test]
    fn a_part_within_another_adds_nothing() {
        let joined = part(1, "bcdef").join(&part(2, "cd")).unwrap();
        assert_eq!(joined.size(), 5);
    }

    #[test]
    fn long_bodies_are_kept_in_pieces() {
        let chunk = Bytes::from(vec![7_u8; 300 * 1024]);
        let content = Content::compact(&VecDeque::from([chunk.clone(), chunk.clone(), chunk]), None);
        assert_eq!(content.chunks.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, 900 * 1024 - PIECE]);
        assert_eq!(content.len, 900 * 1024);
    }
}
