//! The Azure dialect: what the unmodified Azure SDKs speak, over the same blobs as the plain one.
//!
//! A request is verified ([`shared_key`]), matched with the operation it asks for ([`operation`]), and translated into a call
//! of the store. What is not understood is refused before anything is done.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use ifmatch_core::fields::has;
use ifmatch_store::Clock;

use crate::accounts::Account;
use crate::body::BlobBody;
use crate::service::Shared;
use crate::store::{BlobStore, Upload};
pub(crate) use blocks::collect::collect as collect_blocks;
use error::AzureError;
use operation::Operation;
use query::Query;
use response::Identity;
use target::Target;

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
pub(crate) mod shared_key;
mod string_to_sign;
mod target;
mod write;
mod xml;

/// Whether a request is one of this dialect.
pub(crate) fn speaks(head: &Parts) -> bool {
    let has_signature = |query: &str| query.split('&').any(|parameter| parameter.starts_with("sig="));
    has(&head.headers, &fields::VERSION) || head.uri.query().is_some_and(has_signature)
}

/// Answers a request. Its body is asked for only if it is to be stored.
pub(crate) async fn answer<S: BlobStore, C: Clock>(
    shared: Arc<Shared<S, C>>,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Response<BlobBody> {
    let identity = Identity::of(&head);
    let method = head.method.clone();
    let answer = match route(shared, head, upload).await {
        Ok(response) => response,
        Err(error) => error.into_response(&method),
    };
    identity.mark(answer)
}

/// A request whose sender is known.
struct Call<S, C> {
    shared: Arc<Shared<S, C>>,
    head: Parts,
    query: Query,
    account: Account,
}

async fn route<S: BlobStore, C: Clock>(
    shared: Arc<Shared<S, C>>,
    head: Parts,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let account = shared_key::authorise_blob(&shared.accounts, &head, shared.wall())?.clone();
    response::check(&head)?;
    let target = Target::parse(head.uri.path(), &account, &shared.accounts)?;
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    let operation = operation::find(target.kind(), &head.method, &query, &head.headers)?;
    let call = &Call { shared, head, query, account };
    match (operation, &target) {
        (Operation::AccountInformation, _) => Ok(service::account_information()),
        (operation, Target::Service) => Box::pin(of_service(call, operation)).await,
        (operation, Target::Container(container)) => Box::pin(of_container(call, operation, container)).await,
        (operation, Target::Blob(blob)) => of_blob(call, operation, blob, upload).await,
    }
}

async fn of_service<S: BlobStore, C: Clock>(
    call: &Call<S, C>,
    operation: Operation,
) -> Result<Response<BlobBody>, AzureError> {
    match operation {
        Operation::ListContainers => list::containers(call).await,
        _ => Ok(service::properties()),
    }
}

async fn of_container<S: BlobStore, C: Clock>(
    call: &Call<S, C>,
    operation: Operation,
    container: &crate::name::ContainerName,
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

/// Each in a box of its own: together they would be as large as the largest, and moved about with every request.
async fn of_blob<S: BlobStore, C: Clock>(
    call: &Call<S, C>,
    operation: Operation,
    blob: &crate::name::BlobPath,
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
