//! The blob service: a store over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use http_body::Body;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_runtime::{Clock, SystemClock};
use tower_service::Service;

use crate::body::BlobBody;
use crate::dialect::{Context, Dialect};
use crate::documents::Documents;
use crate::plain;
use crate::store::{BlobStore, BoxError, Upload};
use crate::waits::Waits;

/// Default maximum number of bytes in a blob: 5 GiB.
pub const DEFAULT_MAX_BODY: u64 = 5 * 1024 * 1024 * 1024;

/// A store over HTTP, as a [`tower_service::Service`]. Cheap to clone.
///
/// | Request | Response |
/// |---|---|
/// | `GET`, `HEAD /{container}/{blob…}` | the blob: ranges, conditions |
/// | `PUT /{container}/{blob…}` | 201 where there was none, else 200; creates the container |
/// | `DELETE /{container}/{blob…}` | 204 |
/// | `GET /{container}?prefix=&after=&limit=&delimiter=` | its blobs as JSON, in pages; with a delimiter, also its `folders` |
/// | `GET /` | the containers as JSON, in pages |
/// | `POST`, `PUT`, `DELETE /{container}/{blob…}?lease` | acquires, renews, releases the lease |
/// | `GET /{container}/{blob…}?lease` | the state of the lease as JSON |
///
/// A `PUT` keeps `Content-Type`, `Content-Encoding`, `Content-Language`, `Content-Disposition`, `Cache-Control` and all
/// `x-meta-*` fields, up to 8 KiB in total. It verifies `Repr-Digest` and `Content-Digest` (RFC 9530). A retry with the
/// same `Idempotency-Key` gets the first response again; the service then always reads the whole body. A request with
/// `lease-id` can use a leased blob, and a write with `lease-token` is refused after one with a larger token. All errors are problem details (RFC 9457).
///
/// Other protocols over the same blobs are [dialects](Self::dialect).
///
/// ```
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use http::{Request, StatusCode};
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob_indexed::IndexedStore;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let service = BlobService::new(Arc::new(IndexedStore::open(folder.path()).await?));
/// let create = Request::put("/notes/today.txt").header("if-none-match", "*");
/// let response = service.clone().oneshot(create.body(Full::new(Bytes::from("hello")))?).await?;
/// assert_eq!(response.status(), StatusCode::CREATED);
/// assert!(response.headers().contains_key("etag"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BlobService {
    shared: Arc<Context>,
    dialects: Arc<[Arc<dyn Dialect>]>,
}

impl BlobService {
    /// Creates a service over a store.
    pub fn new(store: Arc<dyn BlobStore>) -> Self {
        Self::with_clock(store, SystemClock)
    }

    /// Creates a service with a clock for waits and dates.
    pub fn with_clock(store: Arc<dyn BlobStore>, clock: impl Clock) -> Self {
        let required = RequirePreconditions::none();
        let context = Context {
            store,
            clock: Arc::new(clock),
            max_body: DEFAULT_MAX_BODY,
            required,
            waits: Arc::default(),
            documents: Documents::default(),
        };
        Self {
            shared: Arc::new(context),
            dialects: Arc::default(),
        }
    }

    /// Returns the store and the settings that all dialects share.
    pub fn context(&self) -> &Context {
        &self.shared
    }

    /// Sets the maximum number of bytes in a blob; [`DEFAULT_MAX_BODY`] if not set. A longer body gets 413.
    #[must_use]
    pub fn max_body(mut self, bytes: u64) -> Self {
        Arc::make_mut(&mut self.shared).max_body = bytes;
        self
    }

    /// Sets the methods that need a condition; none if not set. A request without one gets 428.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ifmatch_blob::BlobService;
    /// use ifmatch_blob_indexed::IndexedStore;
    /// use ifmatch_core::policy::RequirePreconditions;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = IndexedStore::open(folder.path()).await?;
    /// let service = BlobService::new(Arc::new(store))
    ///     .max_body(64 * 1024 * 1024)
    ///     .require_preconditions(RequirePreconditions::for_writes());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn require_preconditions(mut self, required: RequirePreconditions) -> Self {
        Arc::make_mut(&mut self.shared).required = required;
        self
    }

    /// Sets the bounds of long polls; [`Waits::default`] if not set.
    ///
    /// A GET in the plain dialect with `Prefer: wait=30` and `If-None-Match` waits up to 30 seconds for another version
    /// instead of returning 304 at once.
    #[must_use]
    pub fn waits(mut self, waits: Waits) -> Self {
        Arc::make_mut(&mut self.shared).waits = Arc::new(waits);
        self
    }

    /// Sets the memory for bodies that an operation holds in full; [`Documents::default`] if not set.
    #[must_use]
    pub fn documents(mut self, documents: Documents) -> Self {
        Arc::make_mut(&mut self.shared).documents = documents;
        self
    }

    /// Adds a dialect. Requests that no dialect recognizes are in the plain one.
    #[must_use]
    pub fn dialect(mut self, dialect: impl Dialect) -> Self {
        let added: Arc<dyn Dialect> = Arc::new(dialect);
        self.dialects = self.dialects.iter().cloned().chain([added]).collect();
        self
    }
}

impl fmt::Debug for BlobService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobService")
            .field("max_body", &self.shared.max_body)
            .field("required", &self.shared.required)
            .finish_non_exhaustive()
    }
}

type ServiceResult = Result<Response<BlobBody>, Infallible>;

impl<B> Service<Request<B>> for BlobService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BlobBody>;
    type Error = Infallible;
    type Future = Either<Ready<ServiceResult>, Pin<Box<dyn Future<Output = ServiceResult> + Send>>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let shared = &self.shared;
        if let Some(dialect) = self.dialects.iter().find(|dialect| dialect.speaks(&head)) {
            let answer = dialect.answer(Arc::clone(shared), head, Upload::new(body));
            return Either::Right(Box::pin(async move { Ok(answer.await) }));
        }
        if let Some(response) = plain::answer_at_once(shared, &head) {
            return Either::Left(ready(Ok(response)));
        }
        let answer = plain::answer(Arc::clone(shared), head, || Upload::new(body));
        Either::Right(Box::pin(async move { Ok(answer.await) }))
    }
}
