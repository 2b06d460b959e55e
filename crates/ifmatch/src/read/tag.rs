//! A response with its tag: the inner service's own, or the hash of the body.

use http::header::{CONTENT_ENCODING, ETAG};
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::digest::Hasher;
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use crate::body::{Content, ResponseBody};
use crate::read::collect::{Collected, collect};
use crate::shared::Shared;

/// A response, its tag among its header fields.
pub(crate) struct Tagged<T: Body> {
    pub(crate) head: Parts,
    pub(crate) body: Collected<T>,
    pub(crate) tag: Option<EntityTag>,
}

impl<T: Body> Tagged<T> {
    /// Finds the tag of a complete representation. It is none where there is no tag and the body is too long to hash.
    pub(crate) async fn of<R: Register, C: Clock>(shared: &Shared<R, C>, response: Response<T>) -> Self {
        let (mut head, body) = response.into_parts();
        let own = own_tag(&head.headers);
        if let Some(tag) = own.as_ref().filter(|_| !is_coded(&head.headers)) {
            return Self::with(tag.clone(), Response::from_parts(head, body));
        }
        let body = collect(&head.headers, body, shared.config.hash_limit, shared.driver.clock()).await;
        let tag = match &body {
            Collected::Whole(content) => Some(hash(shared, content)),
            Collected::Passed(_) => own.and_then(weakened),
        };
        match &tag {
            Some(tag) => head.headers.insert(ETAG, tag.to_header()),
            None => head.headers.remove(ETAG),
        };
        Self { head, body, tag }
    }

    /// A response that has this tag.
    pub(crate) fn with(tag: EntityTag, response: Response<T>) -> Self {
        let (head, body) = response.into_parts();
        Self { head, body: Collected::Passed(ResponseBody::inner(body)), tag: Some(tag) }
    }

    /// The response with whatever was read of its body.
    pub(crate) fn into_response(self) -> Response<ResponseBody<T>> {
        let body = match self.body {
            Collected::Whole(content) => ResponseBody::read(content),
            Collected::Passed(body) => body,
        };
        Response::from_parts(self.head, body)
    }
}

/// The tag among the header fields, if there is exactly one and it is well-formed.
pub(crate) fn own_tag(headers: &HeaderMap) -> Option<EntityTag> {
    let mut lines = headers.get_all(ETAG).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => EntityTag::from_header(line).ok(),
        _ => None,
    }
}

/// Whether the bytes have a content coding. A compression layer inside keeps the tag of what it was given, so that the
/// same strong tag would stand for both.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let coding = headers.get(CONTENT_ENCODING).map(|coding| coding.as_bytes().trim_ascii());
    coding.is_some_and(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

pub(crate) fn weakened(tag: EntityTag) -> Option<EntityTag> {
    if tag.is_weak() { Some(tag) } else { EntityTag::parse(&[b"W/", tag.as_bytes()].concat()).ok() }
}

fn hash<R, C>(shared: &Shared<R, C>, content: &Content) -> EntityTag {
    let mut hasher = Hasher::new(shared.config.tag_format);
    content.chunks.iter().for_each(|chunk| hasher.update(chunk));
    hasher.finish().content_tag()
}
