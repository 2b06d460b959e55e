//! A test kit for services behind the layer: requests without a network, and the check that no update is lost.

use std::fmt::Debug;

use bytes::Bytes;
use http::header::{ETAG, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower_service::Service;

/// A clock for [`Builder::clock`](crate::Builder::clock) that only a test advances, so leases end without a wait.
pub use ifmatch_runtime::ManualClock;

/// Sends requests to a service in memory.
///
/// ```
/// use axum::{Router, routing::get};
/// use ifmatch::ConditionalLayer;
/// use ifmatch::testing::TestClient;
/// use tower::Layer;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let routes = Router::new().route("/note", get(|| async { "hello" }));
/// let client = TestClient::new(ConditionalLayer::new().layer(routes));
/// let note = client.get("/note").await;
/// let again = client.send("GET", "/note", &[("if-none-match", note.tag())], "").await;
/// assert_eq!(again.status, 304);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct TestClient<S> {
    service: S,
}

/// A response, read to its end.
///
/// ```
/// use ifmatch::testing::Answer;
///
/// fn is_current(answer: &Answer, tag: &str) -> bool {
///     answer.status == 200 && answer.tag() == tag
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The content.
    pub body: Bytes,
}

impl Answer {
    /// Returns the entity tag, or the empty string without one.
    ///
    /// ```
    /// # use ifmatch::testing::Answer;
    /// fn is_tagged(answer: &Answer) -> bool {
    ///     !answer.tag().is_empty()
    /// }
    /// ```
    pub fn tag(&self) -> &str {
        self.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default()
    }
}

impl<S, T> TestClient<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: Debug> + Clone,
    T: Body<Error: Debug>,
{
    /// Creates a client of a service.
    pub fn new(service: S) -> Self {
        Self { service }
    }

    /// Sends a GET.
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use ifmatch::testing::TestClient;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let client = TestClient::new(Router::new().route("/note", get(|| async { "hello" })));
    /// assert_eq!(client.get("/note").await.body, "hello");
    /// # });
    /// ```
    ///
    /// # Panics
    /// Same as [`send`](Self::send).
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Sends a request with these header fields.
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use ifmatch::testing::TestClient;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let client = TestClient::new(Router::new().route("/note", get(|| async { "hello" })));
    /// assert_eq!(client.send("PUT", "/note", &[("if-match", "*")], "text").await.status, 405);
    /// # });
    /// ```
    ///
    /// # Panics
    /// Panics if the request is malformed, or the service or a body fails.
    #[expect(clippy::expect_used, reason = "a test stops at an unexpected result")]
    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method.parse::<Method>().expect("a method");
        *request.uri_mut() = path.parse().expect("a path");
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("the name of a header field");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("the value of a header field"));
        }
        let mut service = self.service.clone();
        std::future::poll_fn(|cx| service.poll_ready(cx)).await.expect("the service is ready");
        let (head, body) = service.call(request).await.expect("the service answers").into_parts();
        let body = body.collect().await.expect("the body ends").to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }
}

/// Checks that a resource loses no update: an editor with a stale version gets 412 and changes nothing, and each save
/// answers with the tag that the next GET has.
///
/// `first` and `second` are two bodies that the service accepts by PUT, and that lead to different representations. The
/// resource must exist.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use axum::{Router, extract::State, routing::get};
/// use ifmatch::ConditionalLayer;
/// use ifmatch::testing::assert_no_lost_update;
/// use tower::Layer;
///
/// type Note = Arc<Mutex<String>>;
///
/// async fn read(State(note): State<Note>) -> String {
///     note.lock().unwrap().clone()
/// }
///
/// async fn write(State(note): State<Note>, text: String) {
///     *note.lock().unwrap() = text;
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let routes = Router::new().route("/note", get(read).put(write)).with_state(Note::default());
/// assert_no_lost_update(ConditionalLayer::new().layer(routes), "/note", &[], "mine", "theirs").await;
/// # });
/// ```
///
/// # Panics
/// Panics if an update is lost, or a response has no tag.
pub async fn assert_no_lost_update<S, T>(service: S, path: &str, fields: &[(&str, &str)], first: &str, second: &str)
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: Debug> + Clone,
    T: Body<Error: Debug>,
{
    let client = TestClient::new(service);
    let read = client.get(path).await;
    assert!(read.status.is_success() && !read.tag().is_empty(), "GET {path} has no tag: {read:?}");
    let put = async |tag: &str, body: &str| {
        let fields = [fields, &[("if-match", tag)]].concat();
        client.send("PUT", path, &fields, body.to_owned()).await
    };
    let saved = put(read.tag(), first).await;
    assert!(saved.status.is_success(), "PUT {path} with the current tag: {saved:?}");
    let current = client.get(path).await;
    assert_ne!(current.tag(), read.tag(), "PUT {path} has changed nothing");
    assert_eq!(saved.tag(), current.tag(), "PUT {path} does not answer with the new tag");
    let stale = put(read.tag(), second).await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED, "PUT {path} with a stale tag: {stale:?}");
    assert_eq!(client.get(path).await.body, current.body, "a refused PUT {path} has changed the resource");
    let next = put(saved.tag(), second).await;
    assert!(next.status.is_success(), "PUT {path} with the tag of the previous PUT: {next:?}");
}
