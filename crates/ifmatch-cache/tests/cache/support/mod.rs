//! A scripted origin, a manual clock, and a cache in front.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use ifmatch_cache::{Builder, Cache, CacheHandle, CacheLayer};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_runtime::{Clock, ManualClock};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt};

use crate::case::START;

pub(crate) use body::{Feed, TestBody};
pub(crate) use origin::{Held, Origin, Unreachable};

mod body;
mod origin;

/// Creates the clock of the tests. Waits use the runtime's time.
pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(START.unsigned_abs() * 1_000_000)).with_timers()
}

/// The cache and the origin behind it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) origin: Origin,
    pub(crate) clock: ManualClock,
    pub(crate) cache: Cache<Origin>,
    pub(crate) handle: CacheHandle,
}

impl Default for World {
    fn default() -> Self {
        Self::with(|builder| builder)
    }
}

impl World {
    /// Advances the clock.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Returns whole seconds since the Unix epoch.
    pub(crate) fn unix(&self) -> i64 {
        (self.clock.now().micros() / 1_000_000).cast_signed()
    }

    /// Returns the date this many seconds from now.
    pub(crate) fn date(&self, offset: i64) -> String {
        HttpDate::from_unix(self.unix() + offset).to_string()
    }

    pub(crate) fn with(set: impl FnOnce(Builder) -> Builder) -> Self {
        let (origin, clock) = (Origin::default(), clock());
        let layer = set(CacheLayer::builder().clock(clock.clone())).build();
        Self {
            cache: layer.layer(origin.clone()),
            handle: layer.handle(),
            origin,
            clock,
        }
    }

    pub(crate) async fn try_send(
        &self,
        request: Request<TestBody>,
    ) -> Result<Streaming, Unreachable> {
        self.cache.clone().oneshot(request).await
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, request: Request<TestBody>) -> Answer {
        Answer::read(self.try_send(request).await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(get(path, &[])).await
    }

    pub(crate) async fn get_with(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(get(path, fields)).await
    }
}

/// Header fields of a response that stays fresh for a minute.
pub(crate) const FRESH: [(&str, &str); 1] = [("cache-control", "max-age=60")];

/// The same, with an entity tag.
pub(crate) const TAGGED: [(&str, &str); 2] = [FRESH[0], ("etag", "\"1\"")];

/// Sends a request in a separate task.
pub(crate) fn spawn(world: &World, path: &str, fields: &[(&str, &str)]) -> JoinHandle<Answer> {
    let (world, request) = (world.clone(), get(path, fields));
    tokio::spawn(async move { world.send(request).await })
}

/// Yields until all other tasks wait.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Waits for what other tasks or threads do, for a minute at most.
pub(crate) async fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let done = async {
        while !is_done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), done)
        .await
        .unwrap_or_else(|_| panic!("not within a minute: {what}"));
}

/// Returns a section of a long text. Sections differ, and so do texts with different seeds.
pub(crate) fn letters(seed: usize, section: Range<usize>) -> String {
    section
        .map(|at| char::from(b'a' + u8::try_from((at / 7 + at / 1_000 + seed) % 26).unwrap()))
        .collect()
}

/// Returns the files of bodies in a folder.
pub(crate) fn body_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut bodies: Vec<_> = paths
        .filter(|path| path.to_string_lossy().contains("ifmatch-body-"))
        .collect();
    bodies.sort();
    bodies
}

/// Returns the number of body files and their total length.
pub(crate) fn bodies(folder: &Path) -> (usize, u64) {
    let files = body_files(folder);
    let lengths = files.iter().map(|file| fs::metadata(file).unwrap().len());
    (files.len(), lengths.sum())
}

/// Copies a cache folder as a crash would leave it.
pub(crate) fn crashed(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// A response with an unread body.
pub(crate) type Streaming = Response<ifmatch_cache::ResponseBody<TestBody>>;

pub(crate) fn get(path: &str, fields: &[(&str, &str)]) -> Request<TestBody> {
    request("GET", path, fields)
}

pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<TestBody> {
    let mut request = Request::builder().method(method).uri(path);
    if !fields.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "origin.example");
    }
    for (name, value) in fields {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request.body(TestBody::default()).unwrap()
}

pub(crate) fn response(status: u16, fields: &[(&str, &str)], body: &str) -> Response<TestBody> {
    let mut response = Response::new(TestBody::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in fields {
        let name = HeaderName::try_from(*name).unwrap();
        response
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    response
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// An error if the body ended early.
    pub(crate) body: Result<String, String>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read(response: Streaming) -> Self {
        let (head, body) = response.into_parts();
        let (body, trailers) = match body.collect().await {
            Ok(body) => {
                let trailers = body.trailers().cloned();
                (
                    Ok(String::from_utf8(body.to_bytes().into()).unwrap()),
                    trailers,
                )
            }
            Err(error) => (Err(error.to_string()), None),
        };
        Self {
            status: head.status,
            headers: head.headers,
            body,
            trailers,
        }
    }

    /// Returns this cache's `Cache-Status` member.
    pub(crate) fn cache_status(&self) -> &str {
        let mut lines = self.headers.get_all("cache-status").iter();
        lines.next_back().unwrap().to_str().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        self.body.as_deref().unwrap()
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status().starts_with("ifmatch; hit")
    }
}
