//! Parts of a body that is at hand: 206 with one range, or with several as `multipart/byteranges`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use ifmatch_core::range::ByteRange;
use ifmatch_core::range::multipart::Multipart;

use crate::body::{Content, ResponseBody};
use crate::responses;

/// The response with these parts of `content`, which lie within it, in the place of the response with all of it.
pub(crate) fn partial<T: Body>(mut head: Parts, content: &Content, parts: Vec<ByteRange>) -> Response<ResponseBody<T>> {
    head.status = StatusCode::PARTIAL_CONTENT;
    // It is the digest of all the content.
    head.headers.remove("content-digest");
    let total = content.len();
    let mut chunks = VecDeque::new();
    if let [range] = parts.as_slice() {
        head.headers.insert(CONTENT_RANGE, range.content_range(total));
        chunks.extend(cut(content, *range));
    } else {
        let Some(multipart) = frame(&head, parts, total) else { return responses::unavailable() };
        head.headers.insert(CONTENT_TYPE, multipart.content_type());
        for (header, range) in multipart.parts() {
            chunks.push_back(header);
            chunks.extend(cut(content, range));
        }
        chunks.push_back(multipart.end());
    }
    let content = Content { chunks, trailers: None };
    head.headers.insert(CONTENT_LENGTH, content.len().into());
    Response::from_parts(head, ResponseBody::read(content))
}

/// None: the system has no random numbers to give for the boundary.
fn frame(head: &Parts, parts: Vec<ByteRange>, total: u64) -> Option<Multipart> {
    let boundary = format!("{:016x}{:016x}", ifmatch_runtime::nonce().ok()?, ifmatch_runtime::nonce().ok()?);
    Multipart::new(&boundary, head.headers.get(CONTENT_TYPE).cloned(), parts, total).ok()
}

/// The bytes of a range, without copying them.
fn cut(content: &Content, range: ByteRange) -> impl Iterator<Item = Bytes> + '_ {
    let (mut skip, mut left) = (range.start(), range.len());
    content.chunks.iter().filter_map(move |chunk| {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len() - start);
        skip -= start as u64;
        left -= len as u64;
        (len > 0).then(|| chunk.slice(start..start + len))
    })
}
