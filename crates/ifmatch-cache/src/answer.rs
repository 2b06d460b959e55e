//! Answers made of stored responses: whole, in part, or 304.

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

use crate::asked::Asked;
use crate::body::ResponseBody;
use crate::content::{Content, Part};
use crate::file::FileBody;
use crate::file_reader::{FileReader, Section};
use crate::policy::cache_status::CacheStatus;
use crate::recent::{Form, RecentHeads};
use crate::stored::{Body, Meta, Stored};

/// An answer from the cache, and how many bytes of its body come from there.
pub(crate) struct Answer<T> {
    pub(crate) response: Response<ResponseBody<T>>,
    pub(crate) bytes: u64,
}

/// Answers a request by a stored response, the client's own conditions and ranges evaluated. None: it does not have what
/// is asked for.
pub(crate) fn answer<T>(
    recent: &RecentHeads,
    asked: &Asked,
    stored: &Stored,
    now: Timestamp,
    status: CacheStatus,
) -> Option<Answer<T>> {
    let meta = &stored.meta;
    let age = meta.age(now);
    let status = status.with_ttl(meta.terms.lifetime, age);
    let reply = Reply { recent, asked, meta, now, age: age.as_secs(), status };
    if reply.is_unmodified() {
        return Some(reply.not_modified());
    }
    match &stored.body {
        Body::Whole(content) => Some(reply.whole(content)),
        Body::Part(part) => reply.part(part),
        Body::File(file) => reply.file(file),
        Body::Broadcast(broadcast) if asked.is_head() => Some(reply.empty(broadcast.declared)),
        Body::Broadcast(broadcast) => {
            let reader = broadcast.join()?;
            let headers = reply.headers(broadcast.declared);
            Some(Answer { response: reply.with(headers, ResponseBody::broadcast(reader)), bytes: 0 })
        }
    }
}

/// Answers a request with the origin's 304 to another request with the same conditions.
pub(crate) fn confirmed<T>(
    recent: &RecentHeads,
    asked: &Asked,
    stored: &Stored,
    now: Timestamp,
    status: CacheStatus,
) -> Response<ResponseBody<T>> {
    let meta = &stored.meta;
    let age = meta.age(now);
    let status = status.with_ttl(meta.terms.lifetime, age);
    Reply { recent, asked, meta, now, age: age.as_secs(), status }.not_modified().response
}

/// Whether the client has this very response already, by its own conditions. They count for a successful one only.
pub(crate) fn is_unmodified(asked: &Asked, meta: &Meta) -> bool {
    if !asked.is_conditional() || !meta.status.is_success() {
        return false;
    }
    let validators = Validators { tags: meta.tag.as_slice(), last_modified: meta.comparable_date };
    // A tag in another form than the RFC's is the origin's own: who sends it back has this response.
    if meta.tag.is_none() && has(&meta.headers, &ETAG) && has(&asked.head.headers, &IF_NONE_MATCH) {
        return asked.head.headers.get(IF_NONE_MATCH) == meta.headers.get(ETAG);
    }
    evaluate(&asked.head.headers, &Method::GET, Some(&validators)) == Verdict::NotModified
}

/// 304 in the place of a response that has just come with these header fields.
pub(crate) fn not_modified<T>(mut headers: HeaderMap) -> Response<ResponseBody<T>> {
    retain_304_headers(&mut headers);
    response(StatusCode::NOT_MODIFIED, headers, ResponseBody::empty())
}

/// A response that the cache makes itself.
pub(crate) fn problem<T>(problem: &Problem, status: CacheStatus) -> Response<ResponseBody<T>> {
    let mut response = problem.to_response().map(ResponseBody::from);
    status.append_to(response.headers_mut());
    response
}

struct Reply<'a> {
    recent: &'a RecentHeads,
    asked: &'a Asked,
    meta: &'a Arc<Meta>,
    now: Timestamp,
    /// In seconds.
    age: u64,
    status: CacheStatus,
}

impl Reply<'_> {
    fn is_unmodified(&self) -> bool {
        is_unmodified(self.asked, self.meta)
    }

    fn not_modified<T>(&self) -> Answer<T> {
        let headers = self.recent(true, None, || self.told(self.meta.unmodified().clone()));
        Answer { response: response(StatusCode::NOT_MODIFIED, headers, ResponseBody::empty()), bytes: 0 }
    }

    fn whole<T>(&self, content: &Arc<Content>) -> Answer<T> {
        if self.asked.is_head() {
            return self.empty(Some(content.len));
        }
        let cut = match self.selection(content.len) {
            Selection::Whole => None,
            Selection::Unsatisfiable => return self.unsatisfiable(content.len),
            Selection::Parts(ranges) => self.chunks(&ranges, content.len, |range| Some(content.cut(range))),
        };
        // Without random numbers for a boundary the whole is an answer too.
        cut.unwrap_or_else(|| {
            let body = ResponseBody::content(Arc::clone(content));
            Answer { response: self.with(self.whole_head(content.len), body), bytes: content.len }
        })
    }

    fn part<T>(&self, part: &Part) -> Option<Answer<T>> {
        if self.asked.is_head() {
            return None;
        }
        match self.selection(part.total) {
            Selection::Whole => None,
            Selection::Unsatisfiable => Some(self.unsatisfiable(part.total)),
            Selection::Parts(ranges) => self.chunks(&ranges, part.total, |range| part.cut(range)),
        }
    }

    /// None: the file is gone.
    fn file<T>(&self, file: &Arc<FileBody>) -> Option<Answer<T>> {
        if self.asked.is_head() {
            return Some(self.empty(Some(file.len())));
        }
        let cut = match self.selection(file.len()) {
            Selection::Whole => None,
            Selection::Unsatisfiable => return Some(self.unsatisfiable(file.len())),
            Selection::Parts(ranges) => {
                let cut = |range| Some(VecDeque::from([Section::from(range)]));
                self.ranges(&ranges, file.len(), cut, |sections| FileReader::of(file, sections).map(ResponseBody::file))
            }
        };
        cut.or_else(|| {
            let body = ResponseBody::file(FileReader::new(file)?);
            Some(Answer { response: self.with(self.whole_head(file.len()), body), bytes: file.len() })
        })
    }

    /// What of the representation is asked for.
    fn selection(&self, len: u64) -> Selection {
        if self.meta.status != StatusCode::OK || !self.asked.has_range() {
            return Selection::Whole;
        }
        let sent = Representation { tag: self.meta.tag.as_ref(), last_modified: self.meta.last_modified, len };
        select(&self.asked.head.headers, &sent, self.now, Limits::default())
    }

    fn unsatisfiable<T>(&self, len: u64) -> Answer<T> {
        Answer { response: problem(&Problem::range_not_satisfiable(len), self.status), bytes: 0 }
    }

    fn empty<T>(&self, len: Option<u64>) -> Answer<T> {
        Answer { response: self.with(self.headers(len), ResponseBody::empty()), bytes: 0 }
    }

    /// 206 with these ranges of what is in memory.
    fn chunks<T>(
        &self,
        ranges: &[ByteRange],
        total: u64,
        cut: impl Fn(ByteRange) -> Option<VecDeque<Bytes>>,
    ) -> Option<Answer<T>> {
        self.ranges(ranges, total, cut, |chunks| Some(ResponseBody::chunks(chunks)))
    }

    /// 206 with these ranges, each of the pieces that `cut` makes of it. None: some bytes are not there, or no boundary
    /// could be drawn.
    fn ranges<T, P: From<Bytes>>(
        &self,
        ranges: &[ByteRange],
        total: u64,
        cut: impl Fn(ByteRange) -> Option<VecDeque<P>>,
        body: impl FnOnce(VecDeque<P>) -> Option<ResponseBody<T>>,
    ) -> Option<Answer<T>> {
        let mut headers = self.headers(None);
        // It is the digest of all the content.
        headers.remove("content-digest");
        let mut pieces = VecDeque::new();
        let len = if let [range] = ranges {
            headers.insert(CONTENT_RANGE, range.content_range(total));
            pieces.extend(cut(*range)?);
            range.len()
        } else {
            let boundary = format!("{:016x}{:016x}", ifmatch_runtime::nonce().ok()?, ifmatch_runtime::nonce().ok()?);
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
        Some(Answer { response, bytes: len })
    }

    /// The header fields of an answer with all of the body.
    fn whole_head(&self, len: u64) -> HeaderMap {
        self.recent(false, Some(len), || self.headers(Some(len)))
    }

    fn recent(&self, unmodified: bool, len: Option<u64>, make: impl FnOnce() -> HeaderMap) -> HeaderMap {
        self.recent.get(self.meta, Form { unmodified, len, age: self.age, status: self.status }, make)
    }

    /// The stored header fields, with the age now and what this cache did.
    fn headers(&self, len: Option<u64>) -> HeaderMap {
        let mut headers = self.told(self.meta.headers.clone());
        if let Some(len) = len.filter(|_| self.meta.status != StatusCode::NO_CONTENT) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        headers
    }

    /// These header fields, with the age now and what this cache did.
    fn told(&self, mut headers: HeaderMap) -> HeaderMap {
        headers.insert(AGE, HeaderValue::from(self.age));
        self.status.append_to(&mut headers);
        headers
    }

    fn with<T>(&self, headers: HeaderMap, body: ResponseBody<T>) -> Response<ResponseBody<T>> {
        response(self.meta.status, headers, body)
    }
}

fn response<T>(status: StatusCode, headers: HeaderMap, body: ResponseBody<T>) -> Response<ResponseBody<T>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
