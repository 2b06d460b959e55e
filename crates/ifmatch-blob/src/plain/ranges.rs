//! The body of a 206 with several ranges.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::HeaderValue;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::ByteRange;
use ifmatch_core::range::multipart::Multipart;
use ifmatch_runtime::nonce;

use crate::body::BlobBody;
use crate::store::{Source, StoreError, StoreErrorKind};

/// Returns the multipart framing of several ranges, with a random boundary.
pub(super) fn frame(part_type: Option<HeaderValue>, parts: Vec<ByteRange>, length: u64) -> Result<Multipart, Problem> {
    let random = || nonce().map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error));
    let boundary = format!("{:016x}{:016x}", random()?, random()?);
    Multipart::new(&boundary, part_type, parts, length).map_err(|error| Problem::bad_request(error.to_string()))
}

/// Returns the framed ranges as one body.
pub(super) fn body(multipart: &Multipart, source: Box<dyn Source>) -> BlobBody {
    let mut pieces = VecDeque::new();
    for (header, range) in multipart.parts() {
        pieces.push_back(Piece::Text(header));
        pieces.push_back(Piece::Content(range.start()..range.end() + 1));
    }
    pieces.push_back(Piece::Text(multipart.end()));
    let parts = Parts { pieces, source, current: BlobBody::empty() };
    BlobBody::stream(StreamBody::new(Box::pin(try_unfold(parts, Parts::next))))
}

struct Parts {
    pieces: VecDeque<Piece>,
    source: Box<dyn Source>,
    current: BlobBody,
}

enum Piece {
    Text(Bytes),
    Content(Range<u64>),
}

impl Parts {
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, StoreError> {
        loop {
            if let Some(frame) = self.current.frame().await {
                return Ok(Some((frame?, self)));
            }
            self.current = match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Text(text)) => text.into(),
                Some(Piece::Content(range)) => self.source.read(Some(range)).await?,
            };
        }
    }
}
