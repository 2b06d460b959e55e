//! Lease Blob and Lease Container.

use http::{HeaderValue, Response, StatusCode};
use ifmatch_core::lease::{LeaseAction, LeaseUse, azure};

use super::conditions;
use super::error::AzureError;
use super::{Call, container, fields, response, retry, write};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{LeaseRequest, Leased};

pub(super) async fn of_blob(call: &Call, blob: &BlobPath) -> Result<Response<BlobBody>, AzureError> {
    let action = azure::action(&call.head.headers, || fields::guid().ok_or_else(AzureError::busy))?;
    let conditions = conditions::of_write(&call.head.headers)?;
    write::look(call, blob, &conditions, LeaseUse::Read(None)).await?;
    let request = LeaseRequest { action, preconditions: conditions.preconditions, request: retry::key(&call.head) };
    match call.shared.store.lease(blob, request).await {
        Ok(leased) => Ok(answer(action, &leased)),
        Err(error) => Err(write::explain(call, blob, error).await),
    }
}

pub(super) async fn of_container(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let action = azure::action(&call.head.headers, || fields::guid().ok_or_else(AzureError::busy))?;
    let conditions = conditions::of_write(&call.head.headers)?;
    container::look(call, container, &conditions, LeaseUse::Read(None)).await?;
    let request = LeaseRequest { action, preconditions: conditions.preconditions, request: retry::key(&call.head) };
    let leased = call.shared.store.lease_container(container, request).await.map_err(AzureError::of_container)?;
    Ok(answer(action, &leased))
}

fn answer(action: LeaseAction, leased: &Leased) -> Response<BlobBody> {
    let status = match action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Break(_) => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let mut response = response::empty(status, leased.tag.as_ref(), Some(leased.last_modified));
    let headers = response.headers_mut();
    if matches!(action, LeaseAction::Break(_)) {
        headers.insert(azure::TIME, leased.receipt.seconds_left().unwrap_or_default().into());
    } else if let Some(lease) = leased.receipt.lease {
        let id = HeaderValue::try_from(lease.id().to_string()).ok();
        headers.extend(id.map(|id| (azure::ID, id)));
    }
    response
}
