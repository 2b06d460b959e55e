//! The services inside the layer: bytes in memory, with and without their own tag.

use std::convert::Infallible;
use std::future::ready;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use ifmatch::RequestBody;
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use tower::{Service, service_fn};

/// Served content with its tag.
struct Document {
    content: Bytes,
    tag: EntityTag,
}

static SHORT: LazyLock<Document> = LazyLock::new(|| Document::of(1024));
static LONG: LazyLock<Document> = LazyLock::new(|| Document::of(65_536));

impl Document {
    fn of(len: usize) -> Self {
        let content = Bytes::from(vec![b'x'; len]);
        Self {
            tag: ContentHash::of(&content).content_tag(),
            content,
        }
    }

    fn at(path: &str) -> &'static Self {
        if path == "/64k" { &LONG } else { &SHORT }
    }
}

/// Returns the bytes at a path.
pub(crate) fn content(path: &str) -> Bytes {
    Document::at(path).content.clone()
}

/// Answers with the bytes only.
pub(crate) fn untagged() -> impl Service<
    Request<RequestBody<Incoming>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    service_fn(|request: Request<RequestBody<Incoming>>| {
        ready(Ok(respond(Document::at(request.uri().path()))))
    })
}

/// Answers with the bytes and their stored tag.
pub(crate) fn tagged() -> impl Service<
    Request<RequestBody<Incoming>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    service_fn(|request: Request<RequestBody<Incoming>>| {
        let document = Document::at(request.uri().path());
        let mut response = respond(document);
        response
            .headers_mut()
            .insert(ETAG, document.tag.to_header());
        ready(Ok(response))
    })
}

fn respond(document: &Document) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(document.content.clone()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
