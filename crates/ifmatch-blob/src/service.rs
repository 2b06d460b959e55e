//! The blob service: a store behind HTTP.

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
use crate::plain;
use crate::store::{BlobStore, BoxError, Upload};

/// The longest body that a blob may have unless set otherwise: 5 GiB.
pub const DEFAULT_MAX_BODY: u64 = 5 * 1024 * 1024 * 1024;

/// A store behind HTTP, as a [`tower_service::Service`]. Cheap to clone.
///
/// | Request | Answer |
/// |---|---|
/// | `GET`, `HEAD /{container}/{blob…}` | the blob: ranges, conditions |
/// | `PUT /{container}/{blob…}` | 201 where there was none, else 200; creates the container |
/// | `DELETE /{container}/{blob…}` | 204 |
/// | `GET /{container}?prefix=&after=&limit=` | its blobs as JSON, in pages |
/// | `GET /` | the containers as JSON, in pages |
///
/// A `PUT` keeps `Content-Type`, `Content-Encoding`, `Content-Language`, `Content-Disposition`, `Cache-Control` and
/// all fields `x-meta-*`, 8 KiB together. It checks `Repr-Digest` and `Content-Digest` (RFC 9530). With an
/// `Idempotency-Key`, a request that is sent again gets the answer of the first time; it is then always
/// read to its end. With `x-ms-lease-id` it can use a blob that is leased. All errors are problem details (RFC 9457).
///
/// Other protocols over the same blobs are [dialects](Self::dialect).
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use http::{Request, StatusCode};
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob_embedded::EmbeddedStore;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let service = BlobService::new(EmbeddedStore::open(folder.path()).await?);
/// let create = Request::put("/notes/today.txt").header("if-none-match", "*");
/// let response = service.clone().oneshot(create.body(Full::new(Bytes::from("hello")))?).await?;
/// assert_eq!(response.status(), StatusCode::CREATED);
/// assert!(response.headers().contains_key("etag"));
/// # Ok(())
/// # }
/// ```
pub struct BlobService<S, C = SystemClock> {
    shared: Arc<Context<S, C>>,
    dialects: Arc<[Arc<dyn Dialect<S, C>>]>,
}

impl<S: BlobStore> BlobService<S> {
    /// Puts a store behind HTTP.
    pub fn new(store: S) -> Self {
        Self::with_clock(store, SystemClock)
    }
}

impl<S: BlobStore, C: Clock> BlobService<S, C> {
    /// Puts a store behind HTTP, with a clock of your own: the one that the store uses.
    pub fn with_clock(store: S, clock: C) -> Self {
        let required = RequirePreconditions::none();
        let context = Context { store, clock, max_body: DEFAULT_MAX_BODY, required };
        Self { shared: Arc::new(context), dialects: Arc::default() }
    }
}

impl<S, C> BlobService<S, C> {
    /// Returns the store and the settings that all dialects share.
    pub fn context(&self) -> &Context<S, C> {
        &self.shared
    }
}

impl<S: Clone, C: Clone> BlobService<S, C> {
    /// Sets the most bytes that a blob may have; [`DEFAULT_MAX_BODY`] if not set. A longer one is answered 413.
    #[must_use]
    pub fn max_body(mut self, bytes: u64) -> Self {
        Arc::make_mut(&mut self.shared).max_body = bytes;
        self
    }

    /// Sets which methods need a condition; none if not set. Without one they are answered 428.
    ///
    /// ```
    /// use ifmatch_blob::BlobService;
    /// use ifmatch_blob_embedded::EmbeddedStore;
    /// use ifmatch_core::policy::RequirePreconditions;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = EmbeddedStore::open(folder.path()).await?;
    /// let service = BlobService::new(store)
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

    /// Adds a dialect. Requests that no dialect recognizes are in the plain one.
    #[must_use]
    pub fn dialect(mut self, dialect: impl Dialect<S, C>) -> Self {
        let added: Arc<dyn Dialect<S, C>> = Arc::new(dialect);
        self.dialects = self.dialects.iter().cloned().chain([added]).collect();
        self
    }
}

impl<S, C> Clone for BlobService<S, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), dialects: Arc::clone(&self.dialects) }
    }
}

impl<S, C> fmt::Debug for BlobService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobService")
            .field("max_body", &self.shared.max_body)
            .field("required", &self.shared.required)
            .finish_non_exhaustive()
    }
}

type Answer = Result<Response<BlobBody>, Infallible>;

impl<S, C, B> Service<Request<B>> for BlobService<S, C>
where
    S: BlobStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BlobBody>;
    type Error = Infallible;
    type Future = Either<Ready<Answer>, Pin<Box<dyn Future<Output = Answer> + Send>>>;

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
