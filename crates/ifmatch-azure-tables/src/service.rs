//! The table service over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ifmatch_blob::accounts::Accounts;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::documents::Documents;
use ifmatch_blob::store::{BlobStore, BoxError, StoreError, StoreErrorKind};
use ifmatch_runtime::{Clock, SystemClock};
use tower_service::Service;

use crate::route::{self, TableContext};
use crate::storage::garbage;
use crate::storage::tables::AccountContainers;

/// The table service over a blob store, as the Azure SDKs use it. Cheap to clone.
///
/// | Request | Response |
/// |---|---|
/// | `POST /{account}/Tables` | 201; 409 `TableAlreadyExists` |
/// | `GET /{account}/Tables` | the tables, in pages |
/// | `DELETE /{account}/Tables('{table}')` | 204; deletes all its entities |
/// | `POST /{account}/{table}` | 201; 409 `EntityAlreadyExists` |
/// | `GET /{account}/{table}()?$filter=` | entities, ordered by key, in pages |
/// | `GET /{account}/{table}(PartitionKey='{p}',RowKey='{r}')` | the entity; 404 `ResourceNotFound` |
/// | `PUT` on an entity | replaces it; without `If-Match`, inserts it if needed |
/// | `PATCH`, `MERGE` on an entity | merges properties into it; without `If-Match`, inserts it if needed |
/// | `DELETE` on an entity | deletes it; requires `If-Match` |
/// | `POST /{account}/$batch` | 202; up to 100 changes to entities of a partition, or none |
///
/// All requests must be signed with an account's key, or carry a shared access signature. A tag in `If-Match` is compared as text; if
/// it differs, the response is 412 `UpdateConditionNotSatisfied`. The store must number its writes, as `IndexedStore` does.
///
/// ```
/// use std::sync::Arc;
///
/// use bytes::Bytes;
/// use http::{Request, StatusCode};
/// use http_body_util::Full;
/// use ifmatch_blob_indexed::IndexedStore;
/// use ifmatch_blob::accounts::Accounts;
/// use ifmatch_azure_tables::TableService;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = IndexedStore::open(folder.path()).await?;
/// let service = TableService::new(Arc::new(store)).accounts(Accounts::development());
/// let unsigned = Request::get("/devstoreaccount1/Tables").body(Full::new(Bytes::new()))?;
/// assert_eq!(service.oneshot(unsigned).await?.status(), StatusCode::UNAUTHORIZED);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TableService {
    shared: Arc<TableContext>,
}

impl TableService {
    /// Creates a service over a store. All requests are rejected until [accounts](Self::accounts) are set.
    pub fn new(store: Arc<dyn BlobStore>) -> Self {
        Self::with_clock(store, SystemClock)
    }

    /// Creates a service with a clock for dates and pauses.
    pub fn with_clock(store: Arc<dyn BlobStore>, clock: impl Clock) -> Self {
        let shared = TableContext {
            store,
            clock: Arc::new(clock),
            accounts: Accounts::default(),
            documents: Documents::default(),
            turns: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Deletes the entities of deleted tables and returns their number.
    ///
    /// They are unreachable as soon as their table is deleted; this frees their space. Call it at startup and then at
    /// intervals. It may run concurrently with any requests.
    ///
    /// # Errors
    /// The store failed. The next call deletes the rest.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ifmatch_blob_indexed::IndexedStore;
    /// # use ifmatch_blob::accounts::Accounts;
    /// # use ifmatch_azure_tables::TableService;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let store = IndexedStore::open(folder.path()).await?;
    /// let service = TableService::new(Arc::new(store)).accounts(Accounts::development());
    /// assert_eq!(service.collect().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn collect(&self) -> Result<usize, StoreError> {
        let mut collected = 0;
        for account in self.shared.accounts.iter() {
            let containers = AccountContainers::of(account)
                .map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
            collected += garbage::collect(&*self.shared.store, &containers).await?;
        }
        Ok(collected)
    }

    /// Sets the accounts, each of which has its own tables; none by default.
    #[must_use]
    pub fn accounts(mut self, accounts: Accounts) -> Self {
        Arc::make_mut(&mut self.shared).accounts = accounts;
        self
    }

    /// Sets the memory for the bodies of requests, which other services may share; [`Documents::default`] if not set.
    #[must_use]
    pub fn documents(mut self, documents: Documents) -> Self {
        Arc::make_mut(&mut self.shared).documents = documents;
        self
    }
}

impl fmt::Debug for TableService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableService")
            .field("accounts", &self.shared.accounts)
            .finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for TableService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BlobBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let (head, body) = request.into_parts();
        Box::pin(async move { Ok(route::answer(&shared, head, body).await) })
    }
}
