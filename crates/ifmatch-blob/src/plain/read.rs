//! Reading a blob: GET, and HEAD as a GET without its body. Several ranges are one multipart body.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_core::date::Timestamp;
use ifmatch_core::fields::has;
use ifmatch_core::fields::not_modified::is_retained_by_304;
use ifmatch_core::lease::{LeaseUse, SeenLease};
use ifmatch_core::precondition::{self, Preconditions, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::multipart::Multipart;
use ifmatch_core::range::{self, ByteRange, Limits, Representation, Selection};
use ifmatch_runtime::nonce;

use super::fields::{self, REPR_DIGEST};
use super::problem::no_such_blob;
use crate::body::BlobBody;
use crate::dialect::Context;
use crate::name::BlobPath;
use crate::store::{BlobInfo, Cached, Extent, Opened, Reading, Source, StoreError, StoreErrorKind};

/// Number of fields of a usual response. More can be added.
const USUAL_FIELDS: usize = 12;

/// Answers a GET or HEAD of a blob.
pub(super) async fn read(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
) -> Result<Response<BlobBody>, Problem> {
    let preconditions = Preconditions::from_headers(&head.headers);
    let wanted = wanted(head);
    if revalidates(&preconditions) && wanted.extent != Extent::None {
        // The likely answer is a 304, which needs no body. Otherwise everything is decided again for the version found
        // then.
        let opened = open(shared, head, blob, Reading::HEAD).await?;
        let info = &opened.info;
        let verdict = preconditions.evaluate(&head.method, Some(&info.validators()));
        if let Some(answer) = without_body(verdict, info, shared.wall()) {
            return answer;
        }
    }
    let opened = open(shared, head, blob, wanted).await?;
    let now = shared.wall();
    let verdict = preconditions.evaluate(&head.method, Some(&opened.info.validators()));
    match without_body(verdict, &opened.info, now) {
        Some(answer) => answer,
        None => represent(head, opened, now).await,
    }
}

/// Returns the response if the store has everything in memory. Leases aren't needed.
pub(super) fn at_once(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
) -> Option<Result<Response<BlobBody>, Problem>> {
    if fields::names_lease(&head.headers) {
        return None;
    }
    let Cached { info, content } = shared.store.peek()?.cached(blob)?;
    let now = shared.wall();
    let verdict = precondition::evaluate(&head.headers, &head.method, Some(&info.validators()));
    if let Some(answer) = without_body(verdict, &info, now) {
        return Some(answer);
    }
    let body = match head.method {
        Method::HEAD => BlobBody::empty(),
        _ if has(&head.headers, &RANGE) => return None,
        _ => content?.into(),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = describe(&info, now, |_| true);
    set_length(&mut response, info.length);
    Some(Ok(response))
}

/// Returns what a GET or HEAD reads unless a condition prevents it.
fn wanted(head: &Parts) -> Reading {
    let reading = match head.method {
        Method::HEAD => Reading::HEAD,
        _ => range::field(&head.headers).map_or(Reading::WHOLE, |value| {
            Reading::of_range(value.as_bytes(), Limits::default())
        }),
    };
    reading.sent_to(head.extensions.get().copied())
}

fn revalidates(preconditions: &Preconditions) -> bool {
    preconditions.if_none_match.is_some() || preconditions.if_modified_since.is_some()
}

/// Opens a blob. A lease id in the request must be the blob's; without one, anyone may read.
async fn open(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
    reading: Reading,
) -> Result<Opened, Problem> {
    if !fields::names_lease(&head.headers) {
        return shared
            .store
            .open(blob, reading.without_lease())
            .await?
            .ok_or_else(no_such_blob);
    }
    let opened = shared
        .store
        .open(blob, reading)
        .await?
        .ok_or_else(no_such_blob)?;
    let used = LeaseUse::Read(fields::lease_id(&head.headers)?);
    SeenLease::check(opened.info.lease.as_ref(), used).map_err(Problem::lease_failed)?;
    Ok(opened)
}

/// Returns the response if a condition results in 304 or 412.
fn without_body(
    verdict: Verdict,
    info: &BlobInfo,
    now: Timestamp,
) -> Option<Result<Response<BlobBody>, Problem>> {
    match verdict {
        Verdict::Proceed => None,
        Verdict::Failed(failed) => {
            Some(Err(Problem::precondition_failed(failed, info.tag.as_ref())))
        }
        Verdict::NotModified => {
            let mut response = Response::new(BlobBody::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.headers_mut() = describe(info, now, |name| {
                is_retained_by_304(name, info.tag.is_some())
            });
            Some(Ok(response))
        }
    }
}

/// Returns the response with the representation, or with parts of it.
async fn represent(
    head: &Parts,
    mut opened: Opened,
    now: Timestamp,
) -> Result<Response<BlobBody>, Problem> {
    let info = &opened.info;
    let mut response = Response::new(BlobBody::empty());
    *response.headers_mut() = describe(info, now, |_| true);
    let length = info.length;
    match selection(head, info, now) {
        Selection::Unsatisfiable => return Err(unsatisfiable(info)),
        Selection::Whole if head.method == Method::HEAD => set_length(&mut response, length),
        Selection::Whole => {
            set_length(&mut response, length);
            *response.body_mut() = opened.source.read(None).await?;
        }
        Selection::Parts(parts) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            if let [part] = parts[..] {
                set_length(&mut response, part.len());
                response
                    .headers_mut()
                    .insert(CONTENT_RANGE, part.content_range(length));
                let range = part.start()..part.end() + 1;
                *response.body_mut() = opened.source.read(Some(range)).await?;
            } else {
                let part_type = response.headers().get(CONTENT_TYPE).cloned();
                let multipart = multipart(part_type, parts, length)?;
                set_length(&mut response, multipart.content_length());
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, multipart.content_type());
                *response.body_mut() = multipart_body(&multipart, opened.source);
            }
        }
    }
    Ok(response)
}

/// Returns the selected ranges, or the whole for a method other than GET, which has none (RFC 9110 §14.2).
fn selection(head: &Parts, info: &BlobInfo, now: Timestamp) -> Selection {
    if head.method != Method::GET {
        return Selection::Whole;
    }
    let sent = Representation {
        tag: info.tag.as_ref(),
        last_modified: Some(info.last_modified),
        len: info.length,
    };
    range::select(&head.headers, &sent, now, Limits::default())
}

fn unsatisfiable(info: &BlobInfo) -> Problem {
    let problem = Problem::range_not_satisfiable(info.length);
    match &info.tag {
        Some(tag) => problem.header(ETAG, tag.to_header()),
        None => problem,
    }
}

/// Returns the fields of the representation that are `sent`: all of them for GET, HEAD and 206.
fn describe(info: &BlobInfo, now: Timestamp, sent: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(USUAL_FIELDS);
    fields::add_to(&mut headers, &info.headers, &sent);
    if let Some(tag) = &info.tag {
        headers.insert(ETAG, tag.to_header());
    }
    if sent(&LAST_MODIFIED) && info.last_modified.has_come(now) {
        headers.insert(LAST_MODIFIED, info.last_modified.to_header());
    }
    if let Some(digest) = info
        .hash
        .filter(|_| sent(&REPR_DIGEST))
        .and_then(|hash| hash.repr_digest())
    {
        headers.insert(REPR_DIGEST, digest);
    }
    if sent(&ACCEPT_RANGES) {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    headers
}

fn set_length(response: &mut Response<BlobBody>, length: u64) {
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
}

/// Returns the multipart framing of several ranges, with a random boundary.
fn multipart(
    part_type: Option<HeaderValue>,
    parts: Vec<ByteRange>,
    length: u64,
) -> Result<Multipart, Problem> {
    let random = || nonce().map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error));
    let boundary = format!("{:016x}{:016x}", random()?, random()?);
    Multipart::new(&boundary, part_type, parts, length)
        .map_err(|error| Problem::bad_request(error.to_string()))
}

/// Returns the framed ranges as one body.
fn multipart_body(multipart: &Multipart, source: Box<dyn Source>) -> BlobBody {
    let mut pieces = VecDeque::new();
    for (header, range) in multipart.parts() {
        pieces.push_back(Piece::Text(header));
        pieces.push_back(Piece::Content(range.start()..range.end() + 1));
    }
    pieces.push_back(Piece::Text(multipart.end()));
    let parts = Ranges {
        pieces,
        source,
        current: BlobBody::empty(),
    };
    BlobBody::stream(StreamBody::new(Box::pin(try_unfold(parts, Ranges::next))))
}

struct Ranges {
    pieces: VecDeque<Piece>,
    source: Box<dyn Source>,
    current: BlobBody,
}

enum Piece {
    Text(Bytes),
    Content(Range<u64>),
}

impl Ranges {
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
