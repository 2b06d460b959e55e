//! The rest of a body, for a client that fell behind the bytes that are kept: a request of its own asks for it.

use http::header::{ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use ifmatch_core::EntityTag;

use crate::asked::Asked;
use crate::body::{BodyError, ResponseBody};
use crate::policy::content_range::ContentRange;
use crate::shared::Inner;

/// Lets the body ask for its rest, if its version is known by a strong entity tag.
pub(crate) fn resumable<B, S>(
    response: Response<ResponseBody<S::Body>>,
    asked: &Asked,
    inner: S,
) -> Response<ResponseBody<S::Body>>
where
    S: Inner<B>,
    B: Default + Send + 'static,
{
    let tag = strong_tag(response.headers()).filter(|_| response.status() == StatusCode::OK);
    let (true, Some(tag)) = (response.body().is_on_its_way(), tag) else { return response };
    let head = asked.head.clone();
    response.map(|body| body.resumed_by(move |position, len| Box::pin(rest(inner, head, tag, position, len))))
}

/// Asks for the bytes from a position on of a body of this version, and of this length if it is known.
async fn rest<B, S>(
    mut inner: S,
    mut head: Parts,
    tag: EntityTag,
    position: u64,
    len: Option<u64>,
) -> Result<S::Body, BodyError>
where
    S: Inner<B>,
    B: Default,
{
    for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
        head.headers.remove(name);
    }
    head.headers.insert(RANGE, HeaderValue::try_from(format!("bytes={position}-"))?);
    head.headers.insert(IF_RANGE, tag.to_header());
    let response = inner.run(Request::from_parts(head, B::default())).await;
    let response = response.map_err(|_| "the origin cannot be asked for the rest of the body")?;
    let range = ContentRange::of(response.headers()).filter(|range| {
        let is_rest = range.bytes.start() == position && range.bytes.end() + 1 == range.total;
        is_rest && len.is_none_or(|len| len == range.total)
    });
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT && range.is_some();
    if !is_part || strong_tag(response.headers()) != Some(tag) {
        return Err("the origin has changed the body, or gives no part of it, and the reader was too slow".into());
    }
    Ok(response.into_body())
}

fn strong_tag(headers: &HeaderMap) -> Option<EntityTag> {
    EntityTag::parse(headers.get(ETAG)?.as_bytes()).ok().filter(|tag| !tag.is_weak())
}
