//! The Azure dialect, spoken by the unmodified Azure SDKs, over the same blobs as the plain dialect.
//!
//! A request passes through these modules:
//!
//! 1. [`auth`] verifies its signature, with the access policies that `policies` reads.
//! 2. `request` parses it into a typed operation, and checks that the signature permits it.
//! 3. `blobs`, `blocks`, `snapshots`, `containers` or [`service_info`] carries the operation out on the store. `batch` does all
//!    three steps for each part of a batch.
//! 4. `response` builds the response. Failures are in `error`, with their codes.
//!
//! The operations share what is in other modules: `lookup` finds the container, `write` has the steps of writes of blobs,
//! `copy_source` reads the source of a copy, and `body` receives a body into memory. `blocks` has the operations on blocks,
//! and `block_storage` the stored blocks and lists that they work on.

pub mod auth;
mod batch;
mod blobs;
mod block_storage;
mod blocks;
mod body;
mod containers;
mod copy_source;
mod crc64;
mod error;
mod lookup;
mod policies;
mod query;
mod request;
mod response;
pub mod service_info;
mod snapshots;
mod write;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Response, Uri};
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::{Context, Dialect};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{StoreError, Upload};
use ifmatch_core::fields::has;
use ifmatch_runtime::random_bytes;
use uuid::{Builder, Uuid};

use auth::{AccessGrant, Authenticated};
use error::AzureError;
use request::{BlobOperation, BlobPart, ContainerOperation, RestOperation, permissions};
use response::RequestIds;

/// The Azure dialect of a [`BlobService`](ifmatch_blob::BlobService), for requests with `x-ms-version` or with a signature
/// in the query.
///
/// `/{container}/{blob…}` of the plain dialect is `/{account}/{container}/{blob…}` here.
///
/// ```
/// use std::sync::Arc;
///
/// use ifmatch_azure::AzureDialect;
/// use ifmatch_blob::accounts::Accounts;
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob_indexed::IndexedStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = IndexedStore::open(folder.path()).await?;
/// let service = BlobService::new(Arc::new(store)).dialect(AzureDialect::new(Accounts::development()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AzureDialect {
    accounts: Accounts,
}

impl AzureDialect {
    /// Creates the dialect for requests signed with the keys of these accounts. Without accounts, every request is rejected.
    pub fn new(accounts: Accounts) -> Self {
        Self { accounts }
    }
}

impl Dialect for AzureDialect {
    fn speaks(&self, head: &Parts) -> bool {
        is_signed(&head.uri, &head.headers)
    }

    fn answer(
        &self,
        context: Arc<Context>,
        head: Parts,
        body: Upload,
    ) -> BoxFuture<'static, Response<BlobBody>> {
        Box::pin(respond(context, self.accounts.clone(), head, body))
    }
}

/// Returns `true` if a request has an `x-ms-version` or a shared access signature, so this dialect verifies its signature.
pub fn is_signed(uri: &Uri, headers: &HeaderMap) -> bool {
    has(headers, &request::headers::VERSION) || auth::shared_access::is_in(uri.query())
}

/// Removes blocks left uncommitted for a week, and block lists and snapshots without a blob. Returns the number of entries removed.
///
/// Call it about once a day. It never removes anything that is in use.
///
/// # Errors
/// The store failed. Entries removed before stay removed.
pub async fn collect_garbage(context: &Context) -> Result<u64, StoreError> {
    Ok(block_storage::staging::collect(context).await? + snapshots::collect(context).await?)
}

/// Responds to a request.
async fn respond(
    context: Arc<Context>,
    accounts: Accounts,
    head: Parts,
    body: Upload,
) -> Response<BlobBody> {
    let response = match execute(&context, &accounts, &head, body).await {
        Ok(response) => response,
        Err(error) => response::error(error, &head.method),
    };
    RequestIds::of(&head).add_to(response)
}

/// Authenticates, parses and executes a request.
async fn execute(
    context: &Context,
    accounts: &Accounts,
    head: &Parts,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let policies = policies::named(context, accounts, head).await?;
    let policy = policies.of_request.as_ref();
    let Authenticated { account, grant } =
        auth::authenticate_blob(accounts, head, context.wall(), policy)?;
    let mut operation =
        request::parse(context, head, account, accounts, &grant, policies.of_source)?;
    permissions::check(&mut operation, &grant)?;
    let is_read = matches!(&operation, RestOperation::Blob(_, BlobOperation::Get(get)) if !matches!(get.part, BlobPart::Tags));
    let mut response = carry_out(context, accounts, account, head, operation, body).await?;
    if let AccessGrant::SharedAccess(access) = &grant
        && is_read
        && response.status().is_success()
    {
        for (name, value) in access.overrides() {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

/// Executes a permitted operation.
async fn carry_out(
    context: &Context,
    accounts: &Accounts,
    account: &Account,
    head: &Parts,
    operation: RestOperation<'_>,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        RestOperation::GetAccountInformation => Ok(service_info::account_information()),
        RestOperation::GetServiceProperties => Ok(service_info::blob_properties()),
        RestOperation::GetServiceStatistics => Ok(service_info::statistics()),
        RestOperation::Batch(batch) => {
            Box::pin(batch::run(context, accounts, account, head, batch, body)).await
        }
        RestOperation::ListContainers(list) => {
            Box::pin(containers::list_containers(context, &list)).await
        }
        RestOperation::Container(container, operation) => {
            Box::pin(on_container(context, &container, operation, body)).await
        }
        RestOperation::Blob(blob, operation) => on_blob(context, &blob, operation, body).await,
    }
}

/// Executes a permitted operation on a container.
async fn on_container(
    context: &Context,
    container: &ContainerName,
    operation: ContainerOperation,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        ContainerOperation::Create(headers) => {
            containers::create_container(context, container, *headers).await
        }
        ContainerOperation::GetProperties(lease) => {
            containers::get_container(context, container, lease).await
        }
        ContainerOperation::SetMetadata(write, change) => {
            containers::set_container(context, container, write, change).await
        }
        ContainerOperation::GetPolicies(lease) => {
            containers::get_policies(context, container, lease).await
        }
        ContainerOperation::SetPolicies(write, document) => {
            containers::set_policies(context, container, write, document, body).await
        }
        ContainerOperation::Lease(lease) => {
            containers::lease_container(context, container, lease).await
        }
        ContainerOperation::Delete(write) => {
            containers::delete_container(context, container, write).await
        }
        ContainerOperation::ListBlobs(list) => {
            containers::list_blobs(context, container, &list).await
        }
    }
}

/// Executes a permitted operation on a blob. Each future is boxed separately, so the caller's future isn't as large as the largest of
/// them.
async fn on_blob(
    context: &Context,
    blob: &BlobPath,
    operation: BlobOperation<'_>,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        BlobOperation::Get(get) => Box::pin(blobs::get_blob(context, blob, get)).await,
        BlobOperation::Put(put) => Box::pin(blobs::put_blob(context, blob, put, body)).await,
        BlobOperation::AppendBlock(append) => {
            Box::pin(blobs::append_block(context, blob, append, body)).await
        }
        BlobOperation::AppendFromUrl(append) => {
            Box::pin(blobs::append_block_from_url(context, blob, append)).await
        }
        BlobOperation::Seal(seal) => Box::pin(blobs::seal_blob(context, blob, seal)).await,
        BlobOperation::PutBlock(block) => {
            Box::pin(blocks::put_block(context, blob, block, body)).await
        }
        BlobOperation::PutBlockList(put) => {
            Box::pin(blocks::put_block_list(context, blob, put, body)).await
        }
        BlobOperation::GetBlockList(get) => {
            Box::pin(blocks::get_block_list(context, blob, get)).await
        }
        BlobOperation::Set(write, change) => {
            Box::pin(blobs::set_blob_headers(context, blob, write, change)).await
        }
        BlobOperation::Lease(lease) => Box::pin(blobs::lease_blob(context, blob, lease)).await,
        BlobOperation::Copy(copy) => Box::pin(blobs::copy_blob(context, blob, copy)).await,
        BlobOperation::CopyBlock(block) => {
            Box::pin(blocks::put_block_from_url(context, blob, block)).await
        }
        BlobOperation::SetTier(lease, tier) => {
            Box::pin(blobs::set_blob_tier(context, blob, lease, tier)).await
        }
        BlobOperation::SetTags(set) => Box::pin(blobs::set_tags(context, blob, set, body)).await,
        BlobOperation::Delete(write, deletion) => {
            Box::pin(blobs::delete_blob(context, blob, write, deletion)).await
        }
        BlobOperation::Snapshot(take) => Box::pin(snapshots::take(context, blob, take)).await,
    }
}

/// Returns a random GUID, if the platform provides randomness.
fn random_guid() -> Option<Uuid> {
    Some(Builder::from_random_bytes(random_bytes().ok()?).into_uuid())
}
