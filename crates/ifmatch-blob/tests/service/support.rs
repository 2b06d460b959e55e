//! A store in a temporary folder, a manual clock, and checks that apply to every response.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::Full;
use ifmatch_blob::BlobService;
use ifmatch_blob::store::BoxError;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::digest::ContentHash;
use ifmatch_register::{Driver, MemoryRegister};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) use crate::answer::Answer;
pub(crate) use ifmatch_blob::test_util::ManualClock;

pub(crate) type Store = IndexedStore;
pub(crate) type Service = BlobService;

/// A service over a store in a temporary folder, with its index in memory.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) register: Arc<MemoryRegister>,
    pub(crate) clock: ManualClock,
    pub(crate) store: Store,
    pub(crate) service: Service,
}

pub(crate) async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let register = Arc::new(MemoryRegister::unbounded());
    let clock = ManualClock::default().with_timers();
    let store = reopen(folder.path(), &register, &clock)
        .await
        .expect("an empty folder opens");
    let service = BlobService::with_clock(Arc::new(store.clone()), clock.clone());
    Fixture {
        folder,
        register,
        clock,
        store,
        service,
    }
}

pub(crate) async fn reopen(
    folder: &Path,
    register: &Arc<MemoryRegister>,
    clock: &ManualClock,
) -> Result<Store, ifmatch_blob_indexed::OpenError> {
    IndexedStore::with_driver(
        folder,
        Driver::with_clock(Arc::clone(register), clock.clone()),
    )
    .await
}

impl Fixture {
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        send(&self.service, request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, &[], "")).await
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(request(Method::PUT, path, &[], body)).await
    }

    /// Waits until no body has a file: an abandoned upload removes its file once the disk is done with it.
    pub(crate) async fn until_no_files(&self) {
        let none = async {
            while self.files() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), none)
            .await
            .expect("a file remains");
    }

    /// Returns the number of files of bodies, including incoming ones.
    pub(crate) fn files(&self) -> usize {
        files_in(&self.folder.path().join("bodies")) + files_in(&self.folder.path().join("tmp"))
    }
}

pub(crate) fn files_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .map(|path| if path.is_dir() { files_in(&path) } else { 1 })
        .sum()
}

pub(crate) fn request(
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request
        .body(Full::new(body.into()))
        .expect("a valid request")
}

impl Answer {
    pub(crate) fn tag(&self) -> String {
        self.header("etag").to_owned()
    }

    /// Returns the last part of a problem's type.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        let name = problem["type"]
            .as_str()
            .and_then(|name| name.strip_prefix("urn:ifmatch:problem:"));
        name.expect("a problem type").to_owned()
    }
}

/// Sends a request and reads the whole response, which must match its own header fields.
pub(crate) async fn send<B>(service: &BlobService, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let method = request.method().clone();
    let response = service.clone().oneshot(request).await.expect("infallible");
    let hint = response.body().size_hint().exact();
    let answer = Answer::read(response).await.expect("a whole body");
    let bodiless = method == Method::HEAD || matches!(answer.status.as_u16(), 204 | 304);
    assert!(
        !bodiless || answer.body.is_empty(),
        "a body in answer to {method}: {answer:?}"
    );
    assert!(
        hint.is_none_or(|hint| hint == answer.body.len() as u64),
        "the size hint is wrong: {answer:?}"
    );
    if let (false, Some(length)) = (bodiless, answer.headers.get("content-length")) {
        assert_eq!(
            length.to_str().expect("digits"),
            answer.body.len().to_string()
        );
    }
    let is_strong = answer
        .headers
        .get("etag")
        .is_some_and(|tag| tag.as_bytes().starts_with(b"\""));
    if method == Method::GET && answer.status == StatusCode::OK && is_strong {
        let hash = ContentHash::of(&answer.body);
        assert_eq!(
            hash_in(&answer.tag()),
            hash.hex(),
            "bytes of another version than the tag's"
        );
        assert_eq!(
            answer.header("repr-digest"),
            hash.repr_digest()
                .expect("SHA-256")
                .to_str()
                .expect("ASCII")
        );
    }
    answer
}

/// Returns the hash in a versioned tag.
pub(crate) fn hash_in(tag: &str) -> String {
    let opaque = tag.trim_matches('"');
    opaque
        .split_once('-')
        .map(|(hash, _)| hash.to_owned())
        .expect("a versioned tag")
}

/// Returns bytes that don't repeat at any power of two.
pub(crate) fn bytes(length: usize, seed: u64) -> Bytes {
    let byte = |at: usize| {
        let mixed = (at as u64 / 7)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(seed)
            .rotate_left(17);
        mixed.to_le_bytes()[at % 8]
    };
    (0..length).map(byte).collect()
}
