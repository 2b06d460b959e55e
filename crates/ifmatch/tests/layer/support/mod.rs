//! Helpers: a manual clock, a register that fails on demand, and requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan, Swap, Wrapper, async_trait,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::{Service, ServiceExt};

mod world;

pub(crate) use ifmatch_runtime::ManualClock;
pub(crate) use world::World;

/// The body that an inner service receives.
pub(crate) type Sent = ifmatch::RequestBody<Full<Bytes>>;

/// Waits for a spawned task, for five minutes at most, and panics with its name.
pub(crate) async fn ended<T>(name: &str, task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(300), task).await;
    ended.unwrap_or_else(|_| panic!("{name} did not end within five minutes")).unwrap()
}

/// A register that can be cut off. Clones share the register.
#[derive(Clone, Debug)]
pub(crate) struct Cuttable {
    register: Arc<MemoryRegister>,
    cut: Arc<AtomicBool>,
    gate: Arc<Mutex<Option<Gate>>>,
}

/// A held swap: signals its arrival, and waits for its release.
type Gate = (oneshot::Sender<()>, oneshot::Receiver<()>);

impl Default for Cuttable {
    fn default() -> Self {
        Self { register: Arc::new(MemoryRegister::unbounded()), cut: Arc::default(), gate: Arc::default() }
    }
}

impl Cuttable {
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    /// Returns the register as another process sees it, with a connection that can be cut separately.
    pub(crate) fn of_another_process(&self) -> Self {
        Self { register: Arc::clone(&self.register), ..Self::default() }
    }

    /// Holds the next swap: the first channel signals its arrival, the second one releases it.
    pub(crate) fn hold_swap(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel());
        *self.gate.lock().unwrap() = Some((ask, opened));
        (asked, open)
    }

    fn check(&self) -> Result<(), RegisterError> {
        if self.cut.load(Ordering::SeqCst) { Err(RegisterErrorKind::Unavailable.into()) } else { Ok(()) }
    }
}

#[async_trait]
impl Wrapper for Cuttable {
    fn inner(&self) -> &dyn Register {
        &self.register
    }

    /// The records outlast the processes of a test.
    fn engine(&self) -> Engine {
        Engine::default()
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.check()?;
        self.register.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.check()?;
        let gate = self.gate.lock().unwrap().take();
        if let Some((ask, opened)) = gate {
            let _ = ask.send(());
            let _ = opened.await;
        }
        self.register.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.check()?;
        self.register.scan(scan).await
    }
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// Returns the tag, which must exist.
    pub(crate) fn tag(&self) -> String {
        self.header(ETAG.as_str()).unwrap_or_else(|| panic!("no ETag in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    pub(crate) fn problem(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let kind = text.split("urn:ifmatch:problem:").nth(1).unwrap_or_else(|| panic!("no problem: {self:?}"));
        kind.split('"').next().unwrap().to_owned()
    }
}

/// Builds a request from a line such as `PUT /a`, header fields and a body.
pub(crate) fn request(line: &str, fields: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body.to_owned())).unwrap()
}

/// Sends a request and reads the response.
pub(crate) async fn send<S, T>(service: &S, request: Request<Full<Bytes>>) -> Reply
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: std::fmt::Debug> + Clone,
    T: Body<Data: Send, Error: std::fmt::Debug>,
{
    let response = service.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Reply { status: head.status, headers: head.headers, body }
}

/// Sends a request without a body.
pub(crate) async fn ask<S, T>(service: &S, line: &str, fields: &[(&str, &str)]) -> Reply
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: std::fmt::Debug> + Clone,
    T: Body<Data: Send, Error: std::fmt::Debug>,
{
    send(service, request(line, fields, "")).await
}
