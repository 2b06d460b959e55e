//! Range requests for the rest of a body, for clients that fell behind the bytes kept in memory.

use http::header::{ETAG, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;

use crate::inner_service::InnerService;
use crate::policy::content_range::ContentRange;
use crate::request::CacheRequest;
use crate::respond::response_body::{BodyError, ResponseBody};

/// Enables the body to request its rest, if a strong entity tag identifies its version.
pub(crate) fn resumable<B, S>(
    response: Response<ResponseBody<S::Body>>,
    request: &CacheRequest,
    inner: S,
) -> Response<ResponseBody<S::Body>>
where
    S: InnerService<B>,
    B: Default + Send + 'static,
{
    let tag = strong_tag(response.headers()).filter(|_| response.status() == StatusCode::OK);
    let (true, Some(tag)) = (response.body().may_fall_behind(), tag) else { return response };
    let head = request.head.clone();
    response.map(|body| body.resumed_by(move |position, len| Box::pin(rest(inner, head, tag, position, len))))
}

/// Requests the bytes from a position on of a body with this version, and with this length if it is known.
async fn rest<B, S>(
    mut inner: S,
    mut head: Parts,
    tag: EntityTag,
    position: u64,
    len: Option<u64>,
) -> Result<S::Body, BodyError>
where
    S: InnerService<B>,
    B: Default,
{
    for name in Preconditions::HEADERS {
        head.headers.remove(name);
    }
    head.headers.insert(RANGE, HeaderValue::try_from(format!("bytes={position}-"))?);
    head.headers.insert(IF_RANGE, tag.to_header());
    let response = inner.run(Request::from_parts(head, B::default())).await;
    let response = response.map_err(|_| "the request to the origin for the rest of the body failed")?;
    let range = ContentRange::of(response.headers()).filter(|range| {
        let is_rest = range.bytes.start() == position && range.bytes.end() + 1 == range.total;
        is_rest && len.is_none_or(|len| len == range.total)
    });
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT && range.is_some();
    if !is_part || strong_tag(response.headers()) != Some(tag) {
        return Err("the client read too slowly, and the origin has a new version of the body or does not support \
                    ranges"
            .into());
    }
    Ok(response.into_body())
}

fn strong_tag(headers: &HeaderMap) -> Option<EntityTag> {
    EntityTag::parse(headers.get(ETAG)?.as_bytes()).ok().filter(|tag| !tag.is_weak())
}
