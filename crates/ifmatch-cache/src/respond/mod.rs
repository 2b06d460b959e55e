//! Responses from the store: whole, partial, or 304.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::fields::has;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::precondition::{Validators, Verdict, evaluate};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::multipart::Multipart;
use ifmatch_core::range::{ByteRange, Limits, Representation, Selection, select};

use crate::body::disk_reader::{BodySection, DiskReader};
use crate::body::held::{MemoryHold, MemoryReader};
use crate::body::in_memory::MemoryBody;
use crate::body::on_disk::DiskBody;
use crate::body::parts::BodyParts;
use crate::policy::cache_status::CacheStatus;
use crate::request::CacheRequest;
use crate::respond::recent_heads::{HeadForm, RecentHeads};
use crate::respond::response_body::ResponseBody;
use crate::store::stored_response::{StoredBody, StoredHead, StoredResponse};

pub(crate) mod recent_heads;
pub(crate) mod response_body;

/// A response from the store.
pub(crate) struct CachedResponse<T> {
    pub(crate) response: Response<ResponseBody<T>>,
    /// Number of body bytes from the store.
    pub(crate) bytes: u64,
}

/// Responds with a stored response, after evaluating the client's conditions and ranges. Returns `None` if it lacks the
/// requested bytes.
pub(crate) fn respond<T>(
    recent_heads: &RecentHeads,
    request: &CacheRequest,
    stored: &StoredResponse,
    now: Timestamp,
    status: CacheStatus,
) -> Option<CachedResponse<T>> {
    let responder = Responder::new(recent_heads, request, stored, now, status);
    if responder.is_unmodified() {
        return Some(responder.not_modified());
    }
    match &stored.body {
        StoredBody::Whole(content) => Some(responder.whole(content)),
        StoredBody::File(file) => responder.file(file),
        StoredBody::Parts(parts) => responder.parts(parts),
        StoredBody::Broadcast(broadcast) if request.is_head() => {
            Some(responder.empty(broadcast.declared))
        }
        StoredBody::Broadcast(broadcast) => {
            let reader = broadcast.join()?;
            let headers = responder.headers(broadcast.declared);
            Some(CachedResponse {
                response: responder.with(headers, ResponseBody::broadcast(reader)),
                bytes: 0,
            })
        }
    }
}

/// Responds with the origin's 304 to another request with the same conditions.
pub(crate) fn unmodified<T>(
    recent_heads: &RecentHeads,
    request: &CacheRequest,
    stored: &StoredResponse,
    now: Timestamp,
    status: CacheStatus,
) -> Response<ResponseBody<T>> {
    Responder::new(recent_heads, request, stored, now, status)
        .not_modified()
        .response
}

/// Returns `true` if the client's conditions show that it has this response already. Conditions apply to successful
/// responses only.
pub(crate) fn is_unmodified(request: &CacheRequest, meta: &StoredHead) -> bool {
    if !request.is_conditional() || !meta.status.is_success() {
        return false;
    }
    let validators = Validators {
        tags: meta.tag.as_slice(),
        last_modified: meta.comparable_date,
    };
    // A malformed tag is compared byte by byte: a client that returns it has this response.
    if meta.tag.is_none() && has(&meta.headers, &ETAG) && has(&request.head.headers, &IF_NONE_MATCH)
    {
        return request.head.headers.get(IF_NONE_MATCH) == meta.headers.get(ETAG);
    }
    evaluate(&request.head.headers, &Method::GET, Some(&validators)) == Verdict::NotModified
}

/// Creates a 304 in place of a new response with these header fields.
pub(crate) fn not_modified<T>(mut headers: HeaderMap) -> Response<ResponseBody<T>> {
    retain_304_headers(&mut headers);
    response(StatusCode::NOT_MODIFIED, headers, ResponseBody::empty())
}

/// Creates the 504 to a request that rules out asking the origin (RFC 9111 §5.2.1.7).
pub(crate) fn only_if_cached<T>() -> Response<ResponseBody<T>> {
    let detail = "no stored response can answer this request, and only-if-cached rules out asking the origin";
    let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, "only-if-cached").detail(detail);
    self::problem(
        &problem,
        CacheStatus {
            detail: Some("only-if-cached"),
            ..CacheStatus::HIT
        },
    )
}

/// Creates a response of the cache itself.
pub(crate) fn problem<T>(problem: &Problem, status: CacheStatus) -> Response<ResponseBody<T>> {
    let mut response = problem.to_response().map(ResponseBody::from);
    status.append_to(response.headers_mut());
    response
}

/// Makes the response to a request from a stored one.
struct Responder<'a> {
    recent_heads: &'a RecentHeads,
    request: &'a CacheRequest,
    meta: &'a Arc<StoredHead>,
    now: Timestamp,
    /// Age in seconds.
    age: u64,
    status: CacheStatus,
}

impl<'a> Responder<'a> {
    fn new(
        recent_heads: &'a RecentHeads,
        request: &'a CacheRequest,
        stored: &'a StoredResponse,
        now: Timestamp,
        status: CacheStatus,
    ) -> Self {
        let meta = &stored.meta;
        let age = meta.age(now);
        Self {
            recent_heads,
            request,
            meta,
            now,
            age: age.as_secs(),
            status: status.with_ttl(meta.terms.end(), age),
        }
    }

    fn is_unmodified(&self) -> bool {
        is_unmodified(self.request, self.meta)
    }

    fn not_modified<T>(&self) -> CachedResponse<T> {
        let headers = self.recent_head(true, None, || {
            self.with_age_and_status(self.meta.unmodified().clone())
        });
        CachedResponse {
            response: response(StatusCode::NOT_MODIFIED, headers, ResponseBody::empty()),
            bytes: 0,
        }
    }

    fn whole<T>(&self, content: &Arc<MemoryBody>) -> CachedResponse<T> {
        if self.request.is_head() {
            return self.empty(Some(content.len));
        }
        let cut = match self.selection(content.len) {
            Selection::Whole => None,
            Selection::Unsatisfiable => return self.unsatisfiable(content.len),
            Selection::Parts(ranges) => match (content.hold(), &ranges[..]) {
                (Some(hold), _) => self.chunks(&ranges, content.len, vec![hold], |range| {
                    Some(content.cut(range))
                }),
                (None, [range]) => self.ranges(
                    &ranges,
                    content.len,
                    |_| Some(VecDeque::<Bytes>::new()),
                    |_| Some(ResponseBody::memory(MemoryReader::range(content, *range))),
                ),
                (None, _) => None,
            },
        };
        // Without random numbers for a boundary, or without memory, send the whole body.
        cut.unwrap_or_else(|| {
            let body = ResponseBody::content(content);
            CachedResponse {
                response: self.with(self.whole_head(content.len), body),
                bytes: content.len,
            }
        })
    }

    /// Returns `None` if no file and no part in memory has the requested bytes.
    fn parts<T>(&self, parts: &BodyParts) -> Option<CachedResponse<T>> {
        if self.request.is_head() {
            return None;
        }
        let ranges = match self.selection(parts.total) {
            Selection::Whole => return None,
            Selection::Unsatisfiable => return Some(self.unsatisfiable(parts.total)),
            Selection::Parts(ranges) => ranges,
        };
        let from_file = parts.holding(&ranges).and_then(|(start, file)| {
            let in_file =
                |range: ByteRange| ByteRange::new(range.start() - start, range.end() - start);
            let cut = |range| Some(VecDeque::from([BodySection::from(in_file(range)?)]));
            self.ranges(&ranges, parts.total, cut, |sections| {
                DiskReader::of(file, sections).map(ResponseBody::file)
            })
        });
        from_file.or_else(|| {
            let in_memory = parts.in_memory.as_ref()?;
            self.chunks(&ranges, parts.total, in_memory.hold()?, |range| {
                in_memory.cut(range)
            })
        })
    }

    /// Returns `None` if the file is gone.
    fn file<T>(&self, file: &Arc<DiskBody>) -> Option<CachedResponse<T>> {
        if self.request.is_head() {
            return Some(self.empty(Some(file.len())));
        }
        let cut = match self.selection(file.len()) {
            Selection::Whole => None,
            Selection::Unsatisfiable => return Some(self.unsatisfiable(file.len())),
            Selection::Parts(ranges) => {
                let cut = |range| Some(VecDeque::from([BodySection::from(range)]));
                self.ranges(&ranges, file.len(), cut, |sections| {
                    DiskReader::of(file, sections).map(ResponseBody::file)
                })
            }
        };
        cut.or_else(|| {
            let body = ResponseBody::file(DiskReader::new(file)?);
            Some(CachedResponse {
                response: self.with(self.whole_head(file.len()), body),
                bytes: file.len(),
            })
        })
    }

    /// Returns the requested ranges.
    fn selection(&self, len: u64) -> Selection {
        if self.meta.status != StatusCode::OK || !self.request.has_range() {
            return Selection::Whole;
        }
        let sent = Representation {
            tag: self.meta.tag.as_ref(),
            last_modified: self.meta.last_modified,
            len,
        };
        select(
            &self.request.head.headers,
            &sent,
            self.now,
            Limits::default(),
        )
    }

    fn unsatisfiable<T>(&self, len: u64) -> CachedResponse<T> {
        CachedResponse {
            response: problem(&Problem::range_not_satisfiable(len), self.status),
            bytes: 0,
        }
    }

    fn empty<T>(&self, len: Option<u64>) -> CachedResponse<T> {
        CachedResponse {
            response: self.with(self.headers(len), ResponseBody::empty()),
            bytes: 0,
        }
    }

    /// Responds with ranges of a body in memory.
    fn chunks<T>(
        &self,
        ranges: &[ByteRange],
        total: u64,
        holds: Vec<MemoryHold>,
        cut: impl Fn(ByteRange) -> Option<VecDeque<Bytes>>,
    ) -> Option<CachedResponse<T>> {
        self.ranges(ranges, total, cut, |chunks| {
            Some(ResponseBody::held_chunks(chunks, holds))
        })
    }

    /// Responds with ranges, each consisting of the pieces returned by `cut`. Returns `None` if bytes are missing, or if
    /// there is no randomness for a boundary.
    fn ranges<T, P: From<Bytes>>(
        &self,
        ranges: &[ByteRange],
        total: u64,
        cut: impl Fn(ByteRange) -> Option<VecDeque<P>>,
        body: impl FnOnce(VecDeque<P>) -> Option<ResponseBody<T>>,
    ) -> Option<CachedResponse<T>> {
        let mut headers = self.headers(None);
        // The digest covers the whole content.
        headers.remove("content-digest");
        let mut pieces = VecDeque::new();
        let len = if let [range] = ranges {
            headers.insert(CONTENT_RANGE, range.content_range(total));
            pieces.extend(cut(*range)?);
            range.len()
        } else {
            let boundary = format!(
                "{:016x}{:016x}",
                ifmatch_runtime::nonce().ok()?,
                ifmatch_runtime::nonce().ok()?
            );
            let part_type = headers.get(CONTENT_TYPE).cloned();
            let multipart = Multipart::new(&boundary, part_type, ranges.to_vec(), total).ok()?;
            headers.insert(CONTENT_TYPE, multipart.content_type());
            for (header, range) in multipart.parts() {
                pieces.push_back(header.into());
                pieces.extend(cut(range)?);
            }
            pieces.push_back(multipart.end().into());
            multipart.content_length()
        };
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        let response = response(StatusCode::PARTIAL_CONTENT, headers, body(pieces)?);
        Some(CachedResponse {
            response,
            bytes: len,
        })
    }

    /// Returns the header fields of a response with the whole body.
    fn whole_head(&self, len: u64) -> HeaderMap {
        self.recent_head(false, Some(len), || self.headers(Some(len)))
    }

    fn recent_head(
        &self,
        unmodified: bool,
        len: Option<u64>,
        make: impl FnOnce() -> HeaderMap,
    ) -> HeaderMap {
        self.recent_heads.get(
            self.meta,
            HeadForm {
                unmodified,
                len,
                age: self.age,
                status: self.status,
            },
            make,
        )
    }

    /// Returns the stored header fields with `Age`, `Cache-Status` and `Content-Length`.
    fn headers(&self, len: Option<u64>) -> HeaderMap {
        let mut headers = self.with_age_and_status(self.meta.headers.clone());
        if let Some(len) = len.filter(|_| self.meta.status != StatusCode::NO_CONTENT) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        headers
    }

    /// Adds `Age` and `Cache-Status`.
    fn with_age_and_status(&self, mut headers: HeaderMap) -> HeaderMap {
        headers.insert(AGE, HeaderValue::from(self.age));
        self.status.append_to(&mut headers);
        headers
    }

    fn with<T>(&self, headers: HeaderMap, body: ResponseBody<T>) -> Response<ResponseBody<T>> {
        response(self.meta.status, headers, body)
    }
}

fn response<T>(
    status: StatusCode,
    headers: HeaderMap,
    body: ResponseBody<T>,
) -> Response<ResponseBody<T>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
