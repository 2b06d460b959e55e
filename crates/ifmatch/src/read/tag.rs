//! The tag of a response: the inner service's own, or the hash of the body.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::digest::Hasher;
use ifmatch_core::record::Variant;
use ifmatch_runtime::Clock;

use crate::body::{BodyRest, BufferedBody, PartlyReadBody, ReadEnd, ResponseBody};
use crate::read::revision_tag::LongRepresentation;
use crate::shared::LayerState;

/// Time limit for buffering a body of unknown length. A slow stream is then passed on, as a long one is.
const STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for buffering a body of known length. It isn't a stream, but its source may stall.
const SIZED_TIMEOUT: Duration = Duration::from_secs(10);

/// A response with its tag, which is also among the header fields.
pub(crate) struct TaggedResponse<T: Body> {
    pub(crate) head: Parts,
    pub(crate) body: TaggedBody<T>,
    pub(crate) tag: Option<EntityTag>,
    /// `true` if the body is too long to hash, and no strong tag of the inner service names it.
    pub(crate) is_too_long: bool,
}

/// The body of a tagged response.
pub(crate) enum TaggedBody<B: Body> {
    /// The whole body.
    Whole(BufferedBody),
    /// A body to pass on, with any part that was read.
    Stream(ResponseBody<B>),
}

impl<T: Body> TaggedResponse<T> {
    /// Finds the tag of a whole representation. It is `None` if the inner service gave none and the body is too long to
    /// hash.
    pub(crate) async fn of(shared: &LayerState, response: Response<T>) -> Self {
        let own = own_tag(response.headers());
        if let Some(tag) = own.as_ref().filter(|_| !is_encoded(response.headers())) {
            return Self::new(tag.clone(), response);
        }
        let (mut head, body) = response.into_parts();
        let (body, is_too_long) = buffer(
            &head.headers,
            body,
            shared.config.hash_limit,
            shared.driver.clock(),
        )
        .await;
        let tag = match &body {
            TaggedBody::Whole(content) => {
                let mut hasher = Hasher::new(shared.config.tag_format);
                content.chunks.iter().for_each(|chunk| hasher.update(chunk));
                Some(hasher.finish().content_tag())
            }
            TaggedBody::Stream(_) => own.and_then(weaken),
        };
        match &tag {
            Some(tag) => head.headers.insert(ETAG, tag.to_header()),
            None => head.headers.remove(ETAG),
        };
        Self {
            head,
            body,
            tag,
            is_too_long,
        }
    }

    /// Wraps a response that already carries this tag.
    pub(crate) fn new(tag: EntityTag, response: Response<T>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            head,
            body: TaggedBody::Stream(ResponseBody::inner(body)),
            tag: Some(tag),
            is_too_long: false,
        }
    }

    /// Returns the properties of a representation that is too long to hash.
    pub(crate) fn too_long<'a>(&'a self, variant: &'a Variant) -> Option<LongRepresentation<'a>> {
        let TaggedBody::Stream(body) = &self.body else {
            return None;
        };
        let (headers, len) = (&self.head.headers, body.size_hint().exact());
        self.is_too_long.then_some(LongRepresentation {
            variant,
            headers,
            len,
        })
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody<T>> {
        let body = match self.body {
            TaggedBody::Whole(content) => ResponseBody::buffered(content),
            TaggedBody::Stream(body) => body,
        };
        Response::from_parts(self.head, body)
    }
}

/// Returns the tag in `ETag`, if there is exactly one and it is well-formed.
pub(crate) fn own_tag(headers: &HeaderMap) -> Option<EntityTag> {
    let mut lines = headers.get_all(ETAG).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => EntityTag::from_header(line).ok(),
        _ => None,
    }
}

/// Returns `true` if the bytes have a content coding. A compression layer inside keeps the tag of its input, so one
/// strong tag would name both the plain and the compressed bytes.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    let coding = headers
        .get(CONTENT_ENCODING)
        .map(|coding| coding.as_bytes().trim_ascii());
    coding.is_some_and(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

pub(crate) fn weaken(tag: EntityTag) -> Option<EntityTag> {
    if tag.is_weak() {
        Some(tag)
    } else {
        EntityTag::parse(&[b"W/", tag.as_bytes()].concat()).ok()
    }
}

/// Reads a body to its end, unless it is longer than `limit` bytes, too slow, or a stream that is meant to stay open.
/// Also returns `true` if it is too long.
async fn buffer<B: Body>(
    headers: &HeaderMap,
    body: B,
    limit: u64,
    clock: &dyn Clock,
) -> (TaggedBody<B>, bool) {
    if is_live_stream(headers) {
        return (TaggedBody::Stream(ResponseBody::inner(body)), false);
    }
    if body.size_hint().lower() > limit {
        return (TaggedBody::Stream(ResponseBody::inner(body)), true);
    }
    if body.is_end_stream() {
        return (TaggedBody::Whole(BufferedBody::default()), false);
    }
    let timeout = if body.size_hint().exact().is_some() {
        SIZED_TIMEOUT
    } else {
        STREAM_TIMEOUT
    };
    let mut reader = PartlyReadBody::new(body, limit);
    let end = match select(pin!(reader.read()), pin!(clock.sleep(timeout))).await {
        Either::Left((end, _)) => Some(end),
        Either::Right(_) => None,
    };
    let is_too_long = matches!(end, Some(ReadEnd::Limit));
    let body = match end {
        Some(ReadEnd::Complete(trailers)) => TaggedBody::Whole(BufferedBody {
            chunks: reader.chunks,
            trailers,
        }),
        Some(ReadEnd::Limit) | None => TaggedBody::Stream(ResponseBody::replay(
            reader.chunks,
            BodyRest::Body(reader.body),
        )),
        Some(ReadEnd::Error(error)) => TaggedBody::Stream(ResponseBody::replay(
            reader.chunks,
            BodyRest::Error(Some(error)),
        )),
    };
    (body, is_too_long)
}

/// Returns `true` for media types of streams that stay open: their readers wait for each event.
fn is_live_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes)
        .to_ascii_lowercase();
    let live = [
        &b"text/event-stream"[..],
        b"multipart/x-mixed-replace",
        b"application/grpc",
    ];
    live.iter().any(|live| kind.starts_with(live))
}
