//! A test kit for services behind the layer: requests without a network, and the check that no update is lost.
//!
//! A test of a [lease](crate#leases), which ends without a wait:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use ifmatch::ConditionalLayer;
//! use ifmatch::testing::{ManualClock, TestClient};
//! use tower::Layer;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let clock = ManualClock::default();
//! let layer = ConditionalLayer::builder().ephemeral_leases().clock(clock.clone()).build();
//! let routes = Router::new().route("/note", get(async || "hello").put(async || {}));
//! let client = TestClient::new(layer.layer(routes));
//!
//! let acquire = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
//! let lease = client.send("PUT", "/note?comp=lease", &acquire, "").await;
//! assert_eq!(lease.status, 201);
//! let id = lease.headers["x-ms-lease-id"].to_str().unwrap();
//! assert_eq!(client.send("PUT", "/note", &[("x-ms-lease-id", id)], "mine").await.status, 200);
//! assert_eq!(client.send("PUT", "/note", &[], "theirs").await.status, 412);
//! clock.advance(Duration::from_secs(16));
//! assert_eq!(client.send("PUT", "/note", &[], "theirs").await.status, 200);
//! # });
//! ```

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join, select};
use http::header::{ETAG, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use ifmatch_runtime::{Clock, SystemClock};
use tower_service::Service;

use crate::paused::Pause;

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
        self.headers
            .get(ETAG)
            .and_then(|tag| tag.to_str().ok())
            .unwrap_or_default()
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
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.send_paused(method, path, fields, body.into(), None)
            .await
    }

    /// Sends a request whose handler pauses.
    #[expect(clippy::expect_used, reason = "a test stops at an unexpected result")]
    async fn send_paused(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: Bytes,
        pause: Option<Pause>,
    ) -> Answer {
        let mut request = Request::new(Full::new(body));
        if let Some(pause) = pause {
            request.extensions_mut().insert(pause);
        }
        *request.method_mut() = method.parse::<Method>().expect("a method");
        *request.uri_mut() = path.parse().expect("a path");
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("the name of a header field");
            request.headers_mut().append(
                name,
                HeaderValue::from_str(value).expect("the value of a header field"),
            );
        }
        let mut service = self.service.clone();
        std::future::poll_fn(|cx| service.poll_ready(cx))
            .await
            .expect("the service is ready");
        let (head, body) = service
            .call(request)
            .await
            .expect("the service answers")
            .into_parts();
        let body = body.collect().await.expect("the body ends").to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }
}

/// Time for the second writer of a race. It's over only if the first one, which is paused, keeps it waiting; then both go on.
const BLOCKED: Duration = Duration::from_secs(1);
/// Maximum number of awaits at which the first writer's handler is paused, one race each. Another race pauses it before it starts.
const AWAITS: usize = 64;
/// Number of sweeps over all awaits. A handler can't be paused at an await that is ready at once, as when a database's thread has
/// already answered. It isn't ready in every sweep.
const SWEEPS: usize = 20;

/// Checks that a resource loses no update, even if two instances of the service write to it.
///
/// `service` returns an instance of the service as one process would run it, on the same database:
/// `|| app(pool.clone())`. If the service only ever runs as one process, and keeps its state there, it returns clones
/// of one: `|| app.clone()`. One layer then lets the writers take turns. If the handlers compare versions themselves, share
/// the state instead, `|| app(state.clone())`, so that they can be overtaken.
///
/// `first` and `second` are two bodies that the service accepts by PUT, and that lead to different representations. The
/// resource must exist. The check finds
///
/// - a stale version that is accepted, by the instance that replaced it or by the other one,
/// - a refused PUT that changes the resource, and a save whose response lacks the tag that the next GET has,
/// - a handler that compares the version, and then writes without it: the check pauses the handler of one instance before
///   it starts and at each of its first 64 awaits in turn, and lets the other instance write in between. It does so twenty times,
///   since an await that is ready at once is no pause.
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
/// // Its state is in this process, so it can't run twice: both writers get the same instance.
/// let app = ConditionalLayer::new().layer(routes);
/// assert_no_lost_update(|| app.clone(), "/note", &[], "mine", "theirs").await;
/// # });
/// ```
///
/// # Panics
/// Panics if an update is lost, or a response has no tag. The message names the two writes, and what to do.
pub async fn assert_no_lost_update<S, T>(
    service: impl Fn() -> S,
    path: &str,
    fields: &[(&str, &str)],
    first: &str,
    second: &str,
) where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: Debug> + Clone,
    T: Body<Error: Debug>,
{
    let resource = Resource {
        instances: [service(), service()].map(TestClient::new),
        path,
        fields,
        first,
        second,
    };
    resource.assert_stale_versions_are_refused().await;
    for _ in 0..SWEEPS {
        for point in 0..=AWAITS {
            match resource.race(point).await {
                Raced::Interleaved => {}
                Raced::Over => break,
                // The second writer would wait at every other point, too.
                Raced::Blocked => return,
            }
        }
    }
}

/// A resource that two instances of the service have.
struct Resource<'a, S> {
    instances: [TestClient<S>; 2],
    path: &'a str,
    fields: &'a [(&'a str, &'a str)],
    first: &'a str,
    second: &'a str,
}

/// The way in which two writers met.
enum Raced {
    /// The second writer wrote while the first one was paused.
    Interleaved,
    /// The second writer waited for the first one.
    Blocked,
    /// The first writer ended before the point.
    Over,
}

impl<S, T> Resource<'_, S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: Debug> + Clone,
    T: Body<Error: Debug>,
{
    async fn get(&self) -> Answer {
        let answer = self.instances[0]
            .send("GET", self.path, self.fields, "")
            .await;
        assert!(
            answer.status.is_success() && !answer.tag().is_empty(),
            "GET {} has no tag. The resource must exist, and its GET must state a tag or be short enough to be hashed: {answer:?}",
            self.path
        );
        answer
    }

    async fn put(&self, instance: usize, tag: &str, body: &str, pause: Option<Pause>) -> Answer {
        let fields = [self.fields, &[("if-match", tag)]].concat();
        self.instances[instance]
            .send_paused("PUT", self.path, &fields, body.to_owned().into(), pause)
            .await
    }

    async fn assert_stale_versions_are_refused(&self) {
        let path = self.path;
        let read = self.get().await;
        let saved = self.put(0, read.tag(), self.first, None).await;
        assert!(
            saved.status.is_success(),
            "PUT {path} with the current tag: {saved:?}"
        );
        let current = self.get().await;
        assert_ne!(
            current.tag(),
            read.tag(),
            "PUT {path} changed nothing, or the version stayed the same: {saved:?}"
        );
        assert_eq!(
            saved.tag(),
            current.tag(),
            "PUT {path} does not return the new tag"
        );
        for instance in [0, 1] {
            let stale = self.put(instance, read.tag(), self.second, None).await;
            let by = ["the instance that replaced it", "another instance"][instance];
            assert_eq!(
                stale.status,
                StatusCode::PRECONDITION_FAILED,
                "an update is lost: {by} accepted PUT {path} with the stale tag {}. {REMEDY}: {stale:?}",
                read.tag()
            );
            assert_eq!(
                self.get().await.body,
                current.body,
                "a refused PUT {path} changed the resource"
            );
        }
        let next = self.put(0, saved.tag(), self.second, None).await;
        assert!(
            next.status.is_success(),
            "PUT {path} with the tag of the previous PUT: {next:?}"
        );
    }

    /// Pauses the handler of a writer at this point, and lets another writer replace the same version.
    async fn race(&self, point: usize) -> Raced {
        // What both write must change the resource, or its tag may stay the same.
        let before = self.get().await;
        let reset = self.put(0, before.tag(), self.second, None).await;
        assert!(
            reset.status.is_success(),
            "PUT {} with the current tag: {reset:?}",
            self.path
        );
        let read = self.get().await;
        let pause = Pause::at(point);
        let mut one = pin!(self.put(0, read.tag(), self.first, Some(pause.clone())));
        if let Either::Left(_) = select(one.as_mut(), pin!(pause.reached())).await {
            return Raced::Over;
        }
        let mut two = pin!(self.put(1, read.tag(), self.first, None));
        let (raced, (one, two)) = match select(two.as_mut(), pin!(SystemClock.sleep(BLOCKED))).await
        {
            Either::Left((two, _)) => {
                pause.end();
                (Raced::Interleaved, (one.await, two))
            }
            Either::Right(_) => {
                pause.end();
                (Raced::Blocked, join(one, two).await)
            }
        };
        let after = self.get().await;
        assert!(
            !(one.status.is_success() && two.status.is_success()),
            "an update is lost: two writers have sent PUT {} with If-Match: {}, and both got 2xx. While the handler of the first was \
             paused {}, the second one updated the resource, and then the first one overwrote that. {REMEDY}",
            self.path,
            read.tag(),
            if point == 0 {
                "before it started".to_owned()
            } else {
                format!("at its await number {point}")
            },
        );
        for (done, refused) in [(&one, &two), (&two, &one)] {
            let is_lost =
                done.status.is_success() && !done.tag().is_empty() && done.tag() != after.tag();
            assert!(
                !is_lost,
                "an update is lost: PUT {} was refused, but changed the resource after another writer's update. Write nothing before \
                 the version is compared: {refused:?} after {done:?}",
                self.path
            );
        }
        raced
    }
}

/// What to do about a lost update.
const REMEDY: &str = "Compare the version in the statement that writes (UPDATE … WHERE id = … AND version = …), or let the instances \
                      share a register. A service that only ever runs as one process passes clones of one instance: || app.clone()";
