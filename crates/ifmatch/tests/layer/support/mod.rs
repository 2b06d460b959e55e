//! Helpers: a builder with a manual clock and a register that fails on demand, and requests.

use std::time::Duration;

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use ifmatch::{Builder, ConditionalLayer};
use ifmatch_register::faulty::FaultyRegister;
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
    ended
        .unwrap_or_else(|_| panic!("{name} did not end within five minutes"))
        .unwrap()
}

/// Lets all other tasks run as far as they can.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Returns a builder with a manual clock and a durable register, and these two.
pub(crate) fn builder() -> (Builder, ManualClock, FaultyRegister) {
    let (clock, register) = (ManualClock::default(), durable());
    let builder = ConditionalLayer::builder()
        .register(register.clone())
        .clock(clock.clone());
    (builder, clock, register)
}

pub(crate) fn with_authority(builder: Builder, authoritative: bool) -> Builder {
    if authoritative {
        builder.authoritative()
    } else {
        builder
    }
}

/// Returns a register with records that outlast the processes of a test.
pub(crate) fn durable() -> FaultyRegister {
    FaultyRegister::default().durable()
}

/// Holds the next swap: the first channel signals its arrival, the second one releases it.
pub(crate) fn hold_swap(register: &FaultyRegister) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
    let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel());
    register.before_swap("", async {
        let _ = ask.send(());
        let _ = opened.await;
    });
    (asked, open)
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
        self.header(ETAG.as_str())
            .unwrap_or_else(|| panic!("no ETag in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    }

    pub(crate) fn problem(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let kind = text
            .split("urn:ifmatch:problem:")
            .nth(1)
            .unwrap_or_else(|| panic!("no problem: {self:?}"));
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
    Reply {
        status: head.status,
        headers: head.headers,
        body,
    }
}

/// Sends a request without a body.
pub(crate) async fn ask<S, T>(service: &S, line: &str, fields: &[(&str, &str)]) -> Reply
where
    S: Service<Request<Full<Bytes>>, Response = Response<T>, Error: std::fmt::Debug> + Clone,
    T: Body<Data: Send, Error: std::fmt::Debug>,
{
    send(service, request(line, fields, "")).await
}
