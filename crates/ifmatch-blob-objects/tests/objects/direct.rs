//! A platform that passes bodies between the server and the store unread, and a store that supports it.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use ifmatch_blob::BlobService;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{HeaderChange, Put, SetHeaders, StoreError, StoreErrorKind, Upload};
use ifmatch_blob_objects::{
    BackingStore, DirectBody, DirectUpload, ObjectBlobs, StoreCapabilities, TooSoon,
};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Precondition;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::{LONG, register, subject, within};
use ifmatch_blob::conformance::{Subject, blob, if_absent, kind, pattern, put, refusal};

/// The platform's body.
struct Raw {
    bytes: Option<Bytes>,
    read: Arc<AtomicUsize>,
}

impl Body for Raw {
    type Data = Bytes;
    type Error = StoreError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StoreError>>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Behaviour of the store when a body is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    It,
    Nothing,
    /// Takes the body and doesn't report the result.
    Silently,
}

#[derive(Debug)]
struct Store {
    inner: InMemory,
    takes: Mutex<Takes>,
    /// Number of bodies taken.
    taken: AtomicUsize,
    /// `true` if the next write follows another one too soon.
    too_soon: Mutex<bool>,
    /// Number of times that a platform's body was read by this crate.
    read: Arc<AtomicUsize>,
    aborted: Arc<Notify>,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: InMemory::new(),
            takes: Mutex::new(Takes::It),
            taken: AtomicUsize::new(0),
            too_soon: Mutex::new(false),
            read: Arc::default(),
            aborted: Arc::default(),
        })
    }

    /// Waits until an upload is aborted.
    async fn aborted(&self) {
        within("an upload is aborted", self.aborted.notified()).await;
    }

    fn raw(&self, bytes: impl Into<Bytes>) -> Raw {
        Raw {
            bytes: Some(bytes.into()),
            read: Arc::clone(&self.read),
        }
    }

    fn blobs(self: &Arc<Self>) -> ObjectBlobs {
        let backing = BackingStore::new(Arc::clone(self) as Arc<dyn ObjectStore>)
            .listed_in_order()
            .takes_uploads();
        ObjectBlobs::trusting(backing, register(), StoreCapabilities::FULL).expect("opens")
    }

    fn put(&self, bytes: impl Into<Bytes>) -> Put {
        let bytes = bytes.into();
        let length = Some(bytes.len() as u64);
        Put {
            length,
            ..Put::new(Upload::new(self.raw(bytes)))
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let payload = match options.extensions.get::<DirectBody>() {
            Some(direct) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                direct
                    .take::<Raw>()
                    .and_then(|raw| raw.bytes)
                    .expect("the body of an object, unread")
                    .into()
            }
            None => payload,
        };
        if mem::take(&mut *self.too_soon.lock().unwrap()) {
            return Err(Error::Generic {
                store: "Store",
                source: Box::new(TooSoon),
            });
        }
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let direct = options.extensions.get::<DirectUpload>().cloned();
        let inner = self.inner.put_multipart_opts(location, options).await?;
        let mut upload = Box::new(Counted {
            inner,
            aborted: Arc::clone(&self.aborted),
        });
        let takes = *self.takes.lock().unwrap();
        if let Some(direct) = direct.filter(|_| takes != Takes::Nothing) {
            assert!(direct.take::<String>().is_none(), "there is no such body");
            if let Some(Raw {
                bytes: Some(bytes), ..
            }) = direct.take()
            {
                self.taken.fetch_add(1, Ordering::Relaxed);
                let hash = ContentHash::of(&bytes);
                upload.put_part(bytes.into()).await?;
                if takes == Takes::It {
                    direct.arrived(hash);
                }
            }
        }
        Ok(upload)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let mut result = self.inner.get_opts(location, options).await?;
        if !head {
            let (meta, attributes, range) = (
                result.meta.clone(),
                result.attributes.clone(),
                result.range.clone(),
            );
            let body = DirectBody::new(BlobBody::stream(self.raw(result.bytes().await?)));
            let payload =
                object_store::GetResultPayload::Stream(Box::pin(futures_util::stream::empty()));
            result = GetResult {
                payload,
                meta,
                attributes,
                range,
                extensions: http::Extensions::default(),
            };
            result.extensions.insert(body);
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload that reports when it is aborted.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn MultipartUpload>,
    aborted: Arc<Notify>,
}

#[async_trait]
impl MultipartUpload for Counted {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.aborted.notify_one();
        self.inner.abort().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_its_own_bodies_conforms() {
    let store = Store::new();
    ifmatch_blob::conformance::check(&Subject {
        leases: true,
        ..subject(store.blobs())
    })
    .await;
}

#[tokio::test]
async fn a_read_returns_the_stores_own_body() {
    let store = Store::new();
    let service = BlobService::new(Arc::new(store.blobs()));
    subject(store.blobs())
        .write(&blob("c", "b"), "0123456789")
        .await;
    store.read.store(0, Ordering::Relaxed);
    for (range, status, expected) in [
        (None, StatusCode::OK, "0123456789"),
        (Some("bytes=2-4"), StatusCode::PARTIAL_CONTENT, "234"),
        (Some("bytes=-3"), StatusCode::PARTIAL_CONTENT, "789"),
    ] {
        let request = range
            .into_iter()
            .fold(Request::get("/c/b"), |request, range| {
                request.header("range", range)
            });
        let response = service
            .clone()
            .oneshot(request.body(String::new()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(
            response.headers()["content-length"],
            *expected.len().to_string()
        );
        let raw = response
            .into_body()
            .downcast::<Raw>()
            .expect("the store's own body");
        assert_eq!(raw.bytes.unwrap(), expected);
        assert_eq!(
            store.read.load(Ordering::Relaxed),
            0,
            "the bytes were not read"
        );
    }
    let request = Request::get("/c/b")
        .header("range", "bytes=0-1,8-9")
        .body(String::new())
        .unwrap();
    let body = service.oneshot(request).await.unwrap().into_body();
    let body = body
        .downcast::<Raw>()
        .err()
        .expect("several parts are put together here");
    let text = body.collect().await.unwrap().to_bytes();
    assert!(
        text.windows(6).any(|window| window == b"\r\n01\r\n")
            && text.windows(6).any(|window| window == b"\r\n89\r\n")
    );
}

#[tokio::test]
async fn a_long_body_is_passed_to_the_store_unread() {
    let store = Store::new();
    let subject = subject(store.blobs());
    let blob = blob("c", "b");
    for (at, takes) in [Takes::It, Takes::Nothing].into_iter().enumerate() {
        *store.takes.lock().unwrap() = takes;
        let bytes = pattern(LONG + at);
        let written = subject
            .store
            .put(&blob, store.put(bytes.clone()))
            .await
            .unwrap();
        assert_eq!(written.hash, Some(ContentHash::of(&bytes)));
        assert_eq!(
            (&written.created, store.taken.load(Ordering::Relaxed)),
            (&(at == 0), 1)
        );
        let (info, read) = subject.read(&blob).await.unwrap();
        assert_eq!((info.tag, read), (written.tag, bytes));
    }
    *store.takes.lock().unwrap() = Takes::It;
    // A body of unknown length, one of another platform, and a short one.
    let unknown = Put {
        length: None,
        ..store.put(pattern(LONG))
    };
    let foreign = Put {
        length: Some(LONG as u64),
        ..put(pattern(LONG))
    };
    for put in [unknown, foreign, store.put("short")] {
        subject.store.put(&blob, put).await.unwrap();
    }
    assert_eq!(store.taken.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_body_taken_by_the_store_must_match_the_declarations() {
    let store = Store::new();
    let subject = subject(store.blobs());
    let blob = blob("c", "b");
    subject.write(&blob, "before").await;
    let digest = Some(ContentHash::of(b"another"));
    let refused = subject
        .store
        .put(
            &blob,
            Put {
                digest,
                ..store.put(pattern(LONG))
            },
        )
        .await;
    assert_eq!(kind(refused), StoreErrorKind::DigestMismatch);
    store.aborted().await;
    *store.takes.lock().unwrap() = Takes::Silently;
    assert_eq!(
        kind(subject.store.put(&blob, store.put(pattern(LONG))).await),
        StoreErrorKind::Unavailable
    );
    store.aborted().await;
    *store.takes.lock().unwrap() = Takes::It;
    let limited = Put {
        limit: 100,
        ..store.put(pattern(LONG))
    };
    assert_eq!(
        kind(subject.store.put(&blob, limited).await),
        StoreErrorKind::TooLarge { limit: 100 }
    );
    let taken = store.taken.load(Ordering::Relaxed);
    let late = Put {
        preconditions: if_absent(),
        ..store.put(pattern(LONG))
    };
    assert_eq!(
        refusal(subject.store.put(&blob, late).await).0,
        Precondition::IfNoneMatch
    );
    assert_eq!(
        store.taken.load(Ordering::Relaxed),
        taken,
        "a condition that fails is said before the body is taken"
    );
    assert_eq!(subject.read(&blob).await.unwrap().1, "before");
}

#[tokio::test(start_paused = true)]
async fn a_rewritten_object_passes_through_the_store_only() {
    for (length, too_soon) in [(LONG, false), (LONG - 1, false), (LONG - 1, true)] {
        let store = Store::new();
        let subject = subject(store.blobs());
        let blob = blob("c", "b");
        subject
            .store
            .put(&blob, store.put(pattern(length)))
            .await
            .unwrap();
        let (read, taken) = (
            store.read.load(Ordering::Relaxed),
            store.taken.load(Ordering::Relaxed),
        );
        *store.too_soon.lock().unwrap() = too_soon;
        let metadata = [(
            "owner".into(),
            ifmatch_blob::headers::FieldText::new("me").unwrap(),
        )]
        .into();
        let change = HeaderChange::Metadata(metadata);
        let set = SetHeaders::new(change);
        let written = subject.store.set_headers(&blob, set).await.unwrap();
        assert_eq!(store.read.load(Ordering::Relaxed), read);
        assert_eq!(
            store.taken.load(Ordering::Relaxed),
            taken + 1 + usize::from(too_soon),
            "each attempt reads it again"
        );
        let (info, bytes) = subject.read(&blob).await.unwrap();
        assert_eq!(
            (info.headers.metadata["owner"].as_str(), &bytes),
            ("me", &pattern(length))
        );
        // The hash of a long body isn't known when its fields are sent.
        let hash = (length < LONG).then(|| ContentHash::of(&bytes));
        assert_eq!((info.tag, info.hash), (written.tag, hash));
    }
}
