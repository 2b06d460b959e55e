//! The Azure dialect, spoken by the unmodified Azure SDKs, over the same blobs as the plain dialect.
//!
//! A request is authenticated ([`shared_key`]), matched with an operation ([`operation`]), and translated into calls of
//! the store. A request with anything unknown is rejected before it has any effect.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Response};
use ifmatch_core::fields::has;

use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::{Context, Dialect};
use ifmatch_blob::store::{StoreError, Upload};

use accounts::{Account, Accounts};
use error::AzureError;
use operation::Operation;
use query::Query;
use response::Identity;
use target::Target;

pub mod accounts;
mod blocks;
mod conditions;
mod container;
mod error;
mod fields;
mod header_order;
mod lease;
mod list;
mod md5;
mod operation;
mod query;
mod read;
mod response;
mod retry;
mod service;
pub mod shared_key;
mod string_to_sign;
mod target;
mod write;
mod xml;

/// The Azure dialect of a [`BlobService`](ifmatch_blob::BlobService): its requests have an `x-ms-version`, or a signature
/// in the query.
///
/// `/{container}/{blob…}` of the plain dialect is `/{account}/{container}/{blob…}` here.
///
/// ```
/// use std::sync::Arc;
///
/// use ifmatch_azure::AzureDialect;
/// use ifmatch_azure::accounts::Accounts;
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob_embedded::EmbeddedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = EmbeddedStore::open(folder.path()).await?;
/// let service = BlobService::new(Arc::new(store)).dialect(AzureDialect::new(Accounts::development()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AzureDialect {
    accounts: Accounts,
}

impl AzureDialect {
    /// Creates the dialect for requests signed with the keys of these accounts. With no accounts, it refuses every request.
    pub fn new(accounts: Accounts) -> Self {
        Self { accounts }
    }
}

impl Dialect for AzureDialect {
    fn speaks(&self, head: &Parts) -> bool {
        let has_signature = |query: &str| query.split('&').any(|parameter| parameter.starts_with("sig="));
        is_signed(&head.headers) || head.uri.query().is_some_and(has_signature)
    }

    fn answer(&self, shared: Arc<Context>, head: Parts, body: Upload) -> BoxFuture<'static, Response<BlobBody>> {
        Box::pin(answer(shared, self.accounts.clone(), head, || body))
    }
}

/// Returns `true` if a request has an `x-ms-version`, so that this dialect verifies its signature.
pub fn is_signed(headers: &HeaderMap) -> bool {
    has(headers, &fields::VERSION)
}

/// Removes blocks left uncommitted for a week, and block lists without a blob. Returns the number of entries removed.
///
/// Call it about once a day. It leaves alone what is in use.
///
/// # Errors
/// Fails if the store fails. Entries removed before stay removed.
pub async fn collect_blocks(context: &Context) -> Result<u64, StoreError> {
    blocks::collect::collect(context).await
}

/// Responds to a request.
async fn answer(
    shared: Arc<Context>,
    accounts: Accounts,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Response<BlobBody> {
    let identity = Identity::of(&head);
    let method = head.method.clone();
    let answer = match route(shared, accounts, head, upload).await {
        Ok(response) => response,
        Err(error) => error.into_response(&method),
    };
    identity.mark(answer)
}

/// An authenticated request.
struct Call {
    shared: Arc<Context>,
    accounts: Accounts,
    head: Parts,
    query: Query,
    account: Account,
}

async fn route(
    shared: Arc<Context>,
    accounts: Accounts,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let account = shared_key::authorise_blob(&accounts, &head, shared.wall())?.clone();
    response::check(&head)?;
    let target = Target::parse(head.uri.path(), &account, &accounts)?;
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    let operation = operation::find(target.kind(), &head.method, &query, &head.headers)?;
    let call = &Call { shared, accounts, head, query, account };
    match (operation, &target) {
        (Operation::AccountInformation, _) => Ok(service::account_information()),
        (operation, Target::Service) => Box::pin(of_service(call, operation)).await,
        (operation, Target::Container(container)) => Box::pin(of_container(call, operation, container)).await,
        (operation, Target::Blob(blob)) => of_blob(call, operation, blob, upload).await,
    }
}

async fn of_service(call: &Call, operation: Operation) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        Operation::ListContainers => list::containers(call).await,
        _ => Ok(service::properties()),
    }
}

async fn of_container(
    call: &Call,
    operation: Operation,
    container: &ifmatch_blob::name::ContainerName,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        Operation::CreateContainer => container::create(call, container).await,
        Operation::SetContainerMetadata => container::set_metadata(call, container).await,
        Operation::LeaseContainer => lease::of_container(call, container).await,
        Operation::DeleteContainer => container::delete(call, container).await,
        Operation::ListBlobs => list::blobs(call, container).await,
        _ => container::properties(call, container).await,
    }
}

/// Each future is boxed on its own, so that the caller's future is not as large as the largest of them.
async fn of_blob(
    call: &Call,
    operation: Operation,
    blob: &ifmatch_blob::name::BlobPath,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        Operation::PutBlob => Box::pin(write::put(call, blob, upload)).await,
        Operation::SetMetadata | Operation::SetProperties => Box::pin(write::set_headers(call, operation, blob)).await,
        Operation::DeleteBlob => Box::pin(write::delete(call, blob)).await,
        Operation::LeaseBlob => Box::pin(lease::of_blob(call, blob)).await,
        Operation::PutBlock => Box::pin(blocks::put_block(call, blob, upload)).await,
        Operation::PutBlockList => Box::pin(blocks::put_list(call, blob, upload)).await,
        Operation::GetBlockList => Box::pin(blocks::get_list(call, blob)).await,
        _ => Box::pin(read::read(call, blob)).await,
    }
}
