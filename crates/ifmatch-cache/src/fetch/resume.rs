//! Range requests for the rest of a body, for clients that fell behind the bytes kept in memory, and for files that are damaged.

use http::header::{ETAG, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;

use crate::inner_service::InnerService;
use crate::policy::content_range::ContentRange;
use crate::request::CacheRequest;
use crate::respond::response_body::{BodyError, ResponseBody};

/// Enables the body to request its rest, if a strong entity tag identifies its version, and its bytes are those of the content, or of
/// one range of it, in order.
pub(crate) fn resumable<B, S>(
    response: Response<ResponseBody<S::Body>>,
    request: &CacheRequest,
    inner: S,
) -> Response<ResponseBody<S::Body>>
where
    S: InnerService<B>,
    B: Default + Send + 'static,
{
    if !response.body().may_break_off() {
        return response;
    }
    let range = match response.status() {
        StatusCode::OK => None,
        StatusCode::PARTIAL_CONTENT => match ContentRange::of(response.headers()) {
            Some(range) => Some(range),
            // Several ranges, with their own heads between them.
            None => return response,
        },
        _ => return response,
    };
    let Some(tag) = strong_tag(response.headers()) else {
        return response;
    };
    let head = request.head.clone();
    response.map(|body| {
        body.resumed_by(move |sent, len| {
            Box::pin(rest(inner, head, tag, MissingRange { range, sent, len }))
        })
    })
}

/// What a client still has to get.
struct MissingRange {
    /// The range that it requested, or `None` for the whole content.
    range: Option<ContentRange>,
    /// Number of bytes that it has.
    sent: u64,
    /// Number of bytes that it gets in total, if known.
    len: Option<u64>,
}

impl MissingRange {
    /// Returns the position of the next byte in the content.
    fn start(&self) -> u64 {
        self.range.map_or(0, |range| range.bytes.start()) + self.sent
    }

    /// Returns the range to request. A missing end is requested without an end position.
    fn header(&self) -> String {
        let end = self
            .range
            .map_or_else(String::new, |range| range.bytes.end().to_string());
        format!("bytes={}-{end}", self.start())
    }

    /// Returns `true` if these are the missing bytes, of content with the same length.
    fn is(&self, part: ContentRange) -> bool {
        let ends = match self.range {
            Some(range) => part.bytes.end() == range.bytes.end() && part.total == range.total,
            None => {
                part.bytes.end() + 1 == part.total && self.len.is_none_or(|len| len == part.total)
            }
        };
        ends && part.bytes.start() == self.start()
    }
}

/// Requests the missing bytes of the version with this tag.
async fn rest<B, S>(
    mut inner: S,
    mut head: Parts,
    tag: EntityTag,
    missing: MissingRange,
) -> Result<S::Body, BodyError>
where
    S: InnerService<B>,
    B: Default,
{
    for name in Preconditions::HEADERS {
        head.headers.remove(name);
    }
    head.headers
        .insert(RANGE, HeaderValue::try_from(missing.header())?);
    head.headers.insert(IF_RANGE, tag.to_header());
    let response = inner.run(Request::from_parts(head, B::default())).await;
    let response =
        response.map_err(|_| "the request to the origin for the rest of the body failed")?;
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT
        && ContentRange::of(response.headers()).is_some_and(|part| missing.is(part));
    if !is_part || strong_tag(response.headers()) != Some(tag) {
        return Err(
            "the next bytes are no longer kept, and the origin has a new version of the body or does not support \
                    ranges"
                .into(),
        );
    }
    Ok(response.into_body())
}

fn strong_tag(headers: &HeaderMap) -> Option<EntityTag> {
    EntityTag::parse(headers.get(ETAG)?.as_bytes())
        .ok()
        .filter(|tag| !tag.is_weak())
}
