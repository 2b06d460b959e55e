//! An inner service with documents in memory. Header fields of a request make it stop or fail.
//!
//! | field of the request | effect |
//! |---|---|
//! | `x-hold-before: n`, `x-hold-after: n` | a write stops at latch `n`, before or after it takes effect |
//! | `x-get-hold-before: n`, `x-get-hold-after: n` | a read stops at latch `n`, before or after it reads the state |
//! | `x-end: 500` | a write responds with this status, without an effect |
//! | `x-end-after: 500` | a write takes effect, and responds with this status |
//! | `x-panic: 1` | a write takes effect, and panics |

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use ifmatch::Permit;
use tokio::sync::Semaphore;
use tower::Service;

/// The service. Clones share the documents.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    documents: Mutex<BTreeMap<String, Bytes>>,
    fields: Mutex<HashMap<(Method, String), HeaderMap>>,
    statuses: Mutex<HashMap<(Method, String), StatusCode>>,
    latches: Mutex<HashMap<String, Arc<Latch>>>,
    seen: Mutex<Vec<Parts>>,
}

struct Latch {
    reached: Semaphore,
    released: Semaphore,
}

impl World {
    /// Creates a service with these documents.
    pub(crate) fn with(documents: &[(&str, &str)]) -> Self {
        let world = Self::default();
        for (path, text) in documents {
            world.set(path, text);
        }
        world
    }

    /// Changes a document without the layer.
    pub(crate) fn set(&self, path: &str, text: &str) {
        self.0
            .documents
            .lock()
            .unwrap()
            .insert(path.to_owned(), Bytes::from(text.to_owned()));
    }

    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let documents = self.0.documents.lock().unwrap();
        documents
            .get(path)
            .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Adds a header field to all responses of this method and path.
    pub(crate) fn respond(&self, line: &str, name: &'static str, value: &str) {
        let (method, path) = line.split_once(' ').unwrap();
        let key = (method.parse().unwrap(), path.to_owned());
        let value = HeaderValue::from_str(value).unwrap();
        self.0
            .fields
            .lock()
            .unwrap()
            .entry(key)
            .or_default()
            .insert(HeaderName::from_static(name), value);
    }

    /// Sets the status of responses to this method and path.
    pub(crate) fn answer(&self, line: &str, status: u16) {
        let (method, path) = line.split_once(' ').unwrap();
        let key = (method.parse().unwrap(), path.to_owned());
        self.0
            .statuses
            .lock()
            .unwrap()
            .insert(key, StatusCode::from_u16(status).unwrap());
    }

    /// Returns the number of requests with this method.
    pub(crate) fn runs(&self, method: &Method) -> usize {
        self.0
            .seen
            .lock()
            .unwrap()
            .iter()
            .filter(|head| head.method == method)
            .count()
    }

    /// Returns the heads of all requests.
    pub(crate) fn seen(&self) -> Vec<Parts> {
        self.0.seen.lock().unwrap().clone()
    }

    /// Waits until a request has reached the latch.
    pub(crate) async fn reached(&self, latch: &str) {
        let latched = self.latch(latch);
        let reached =
            tokio::time::timeout(Duration::from_secs(300), latched.reached.acquire()).await;
        reached
            .unwrap_or_else(|_| panic!("no request reached {latch} within five minutes"))
            .unwrap()
            .forget();
    }

    /// Releases one request from the latch.
    pub(crate) fn release(&self, latch: &str) {
        self.latch(latch).released.add_permits(1);
    }

    fn latch(&self, name: &str) -> Arc<Latch> {
        let new = || {
            Arc::new(Latch {
                reached: Semaphore::new(0),
                released: Semaphore::new(0),
            })
        };
        Arc::clone(
            self.0
                .latches
                .lock()
                .unwrap()
                .entry(name.to_owned())
                .or_insert_with(new),
        )
    }

    async fn hold(&self, head: &Parts, field: &str) {
        if let Some(name) = text(head, field) {
            let latch = self.latch(&name);
            latch.reached.add_permits(1);
            latch.released.acquire().await.unwrap().forget();
        }
    }

    async fn run<B: Body<Error: std::fmt::Debug>>(
        self,
        request: Request<B>,
    ) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        self.0.seen.lock().unwrap().push(head.clone());
        let mut response = if head.method == Method::GET {
            self.hold(&head, "x-get-hold-before").await;
            let document = self
                .0
                .documents
                .lock()
                .unwrap()
                .get(head.uri.path())
                .cloned();
            self.hold(&head, "x-get-hold-after").await;
            document.map_or_else(|| status(404), |bytes| Response::new(Full::new(bytes)))
        } else {
            let is_guarded = head.extensions.get::<Permit>().is_some();
            assert!(
                is_guarded || head.method == Method::POST,
                "a write without a permit: {head:?}"
            );
            self.change(&head, body.collect().await.unwrap().to_bytes())
                .await
        };
        let key = (head.method.clone(), head.uri.path().to_owned());
        if let Some(status) = self.0.statuses.lock().unwrap().get(&key) {
            *response.status_mut() = *status;
        }
        if let Some(fields) = self.0.fields.lock().unwrap().get(&key) {
            response.headers_mut().extend(fields.clone());
        }
        response
    }

    async fn change(&self, head: &Parts, body: Bytes) -> Response<Full<Bytes>> {
        self.hold(head, "x-hold-before").await;
        if let Some(end) = text(head, "x-end") {
            return status(end.parse().unwrap());
        }
        let path = head.uri.path().to_owned();
        let before = match head.method {
            Method::DELETE => self.0.documents.lock().unwrap().remove(&path),
            _ => self.0.documents.lock().unwrap().insert(path, body),
        };
        self.hold(head, "x-hold-after").await;
        assert!(text(head, "x-panic").is_none(), "requested panic");
        match text(head, "x-end-after") {
            Some(end) => status(end.parse().unwrap()),
            None if before.is_some() => status(204),
            None => status(201),
        }
    }
}

impl<B> Service<Request<B>> for World
where
    B: Body<Data: Send, Error: std::fmt::Debug + Send> + Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let world = self.clone();
        Box::pin(async move { Ok(world.run(request).await) })
    }
}

fn status(code: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn text(head: &Parts, field: &str) -> Option<String> {
    head.headers
        .get(field)
        .map(|value| value.to_str().unwrap().to_owned())
}
