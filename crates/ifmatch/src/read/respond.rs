//! The conditions and ranges of a read, evaluated on the representation about to be sent.

use std::collections::VecDeque;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE,
};
use http::response::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::precondition::{Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::multipart::Multipart;
use ifmatch_core::range::{ByteRange, Limits, Representation, Selection, select};

use crate::body::{BufferedBody, ResponseBody};
use crate::read::compressed_tag;
use crate::read::request::{ReadContext, ReadRequest};
use crate::read::tag::{TaggedBody, TaggedResponse};
use crate::responses;

/// The selected representation (RFC 9110 §3.2), about to be sent.
pub(crate) struct SelectedRepresentation<'a, T: Body> {
    request: &'a ReadRequest,
    tagged: TaggedResponse<T>,
    /// The tag that the client sees.
    shown: Option<EntityTag>,
    last_modified: Option<HttpDate>,
    behind_compression: bool,
    now: Timestamp,
}

impl<'a, T: Body> SelectedRepresentation<'a, T> {
    /// `recorded` is the modification date in the record, also as a header value.
    pub(crate) fn new(
        context: &'a ReadContext,
        mut tagged: TaggedResponse<T>,
        recorded: Option<(HttpDate, HeaderValue)>,
    ) -> Self {
        let behind_compression = context.shared.config.behind_compression;
        let headers = &mut tagged.head.headers;
        // Dates after the start of the read may be shared with a later change.
        let now = context.baseline.wall;
        // All dates of one resource must be of one kind. Untagged representations are never in the record.
        let date = match tagged.tag {
            Some(_) => recorded,
            None => HttpDate::from_headers(headers, LAST_MODIFIED)
                .filter(|date| date.has_ended(now))
                .map(|date| (date, date.to_header())),
        };
        let last_modified = date
            .filter(|(date, _)| date.has_come(now))
            .map(|(date, value)| {
                headers.insert(LAST_MODIFIED, value);
                date
            });
        if last_modified.is_none() {
            headers.remove(LAST_MODIFIED);
        }
        let mut shown = tagged.tag.clone();
        if behind_compression && let Some(tag) = &mut shown {
            *tag = compressed_tag::shown(tag, &context.request.headers);
            headers.insert(ETAG, tag.to_header());
        }
        Self {
            request: &context.request,
            tagged,
            shown,
            last_modified,
            behind_compression,
            now,
        }
    }

    /// Evaluates the conditions, then `Range`.
    pub(crate) fn respond(self) -> Response<ResponseBody<T>> {
        let validators = Validators {
            tags: self.shown.as_slice(),
            last_modified: self.last_modified,
        };
        match self
            .request
            .conditions
            .evaluate(&Method::GET, Some(&validators))
        {
            Verdict::NotModified => responses::not_modified(self.tagged.head.headers),
            Verdict::Failed(condition) => responses::problem(&Problem::precondition_failed(
                condition,
                self.shown.as_ref(),
            )),
            Verdict::Proceed => self.respond_range(),
        }
    }

    /// Sends the requested ranges if the whole body is buffered. Compression layers leave 206 responses alone, so a part
    /// carries the tag without a suffix, and `If-Range` must name that tag.
    fn respond_range(mut self) -> Response<ResponseBody<T>> {
        let TaggedBody::Whole(content) = &self.tagged.body else {
            return self.tagged.into_response();
        };
        if !self.behind_compression {
            self.tagged
                .head
                .headers
                .entry(ACCEPT_RANGES)
                .or_insert(HeaderValue::from_static("bytes"));
        }
        if self.request.is_head || !self.request.headers.contains_key(RANGE) {
            return self.tagged.into_response();
        }
        let tag = self.tagged.tag.as_ref();
        if tag != self.shown.as_ref() && self.request.conditions.if_match.is_some() {
            // `If-Match` named compressed bytes; a part would be of the uncompressed ones.
            return self.tagged.into_response();
        }
        let whole = Representation {
            tag,
            last_modified: self.last_modified,
            len: content.len(),
        };
        let ranges = match select(&self.request.headers, &whole, self.now, Limits::default()) {
            Selection::Whole => return self.tagged.into_response(),
            Selection::Unsatisfiable => {
                return responses::problem(&Problem::range_not_satisfiable(whole.len));
            }
            Selection::Parts(ranges) => ranges,
        };
        if ranges.len() > 1 && self.behind_compression {
            return self.tagged.into_response();
        }
        let mut head = self.tagged.head;
        if let Some(tag) = tag {
            head.headers.insert(ETAG, tag.to_header());
        }
        partial_content(head, content, ranges)
    }
}

/// Builds a 206 with these ranges, which lie within `content`: one range, or several as `multipart/byteranges`.
fn partial_content<T: Body>(
    mut head: Parts,
    content: &BufferedBody,
    ranges: Vec<ByteRange>,
) -> Response<ResponseBody<T>> {
    head.status = StatusCode::PARTIAL_CONTENT;
    // These are digests of the whole content.
    for digest in ["content-digest", "content-md5"] {
        head.headers.remove(digest);
    }
    let total = content.len();
    let mut chunks = VecDeque::new();
    if let [range] = ranges.as_slice() {
        head.headers
            .insert(CONTENT_RANGE, range.content_range(total));
        chunks.extend(slice(content, *range));
    } else {
        let Some(multipart) = multipart(&head, ranges, total) else {
            return responses::unavailable();
        };
        head.headers.insert(CONTENT_TYPE, multipart.content_type());
        for (header, range) in multipart.parts() {
            chunks.push_back(header);
            chunks.extend(slice(content, range));
        }
        chunks.push_back(multipart.end());
    }
    let content = BufferedBody {
        chunks,
        trailers: None,
    };
    head.headers.insert(CONTENT_LENGTH, content.len().into());
    Response::from_parts(head, ResponseBody::buffered(content))
}

/// Returns `None` if the system has no random numbers for the boundary.
fn multipart(head: &Parts, ranges: Vec<ByteRange>, total: u64) -> Option<Multipart> {
    let boundary = format!(
        "{:016x}{:016x}",
        ifmatch_runtime::nonce().ok()?,
        ifmatch_runtime::nonce().ok()?
    );
    Multipart::new(
        &boundary,
        head.headers.get(CONTENT_TYPE).cloned(),
        ranges,
        total,
    )
    .ok()
}

/// Returns the bytes of a range without copying them.
fn slice(content: &BufferedBody, range: ByteRange) -> impl Iterator<Item = Bytes> + '_ {
    let (mut skip, mut left) = (range.start(), range.len());
    content.chunks.iter().filter_map(move |chunk| {
        let start = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(chunk.len() - start);
        skip -= start as u64;
        left -= len as u64;
        (len > 0).then(|| chunk.slice(start..start + len))
    })
}
