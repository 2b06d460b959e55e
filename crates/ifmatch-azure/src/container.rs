//! Operations on containers, except leases and listings.

use http::{Response, StatusCode};
use ifmatch_core::lease::{self, LeaseUse, azure};

use super::conditions::{self, WriteConditions};
use super::error::AzureError;
use super::{Call, fields, response, retry};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{ContainerInfo, Delete, HeaderChange, SetHeaders, StoreErrorKind};

pub(super) async fn create(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let headers = BlobHeaders { metadata: fields::metadata(&call.head.headers)?, ..BlobHeaders::default() };
    let created = call.shared.store.create_container(container, headers).await;
    Ok(changed(StatusCode::CREATED, &created.map_err(AzureError::of_container)?))
}

pub(super) async fn properties(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let id = azure::id(&call.head.headers, azure::ID)?;
    let info = find(call, container).await?;
    let now = call.shared.now();
    lease::check(info.lease.as_ref(), LeaseUse::Read(id), now)
        .map_err(|failure| AzureError::of_container(StoreErrorKind::LeaseFailed(failure)))?;
    let mut response = changed(StatusCode::OK, &info);
    let headers = response.headers_mut();
    fields::add_metadata(headers, &info.headers);
    fields::add_lease(headers, info.lease.as_ref(), now);
    Ok(response)
}

pub(super) async fn set_metadata(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let headers = &call.head.headers;
    let conditions = conditions::of_write(headers)?;
    let lease = LeaseUse::Read(azure::id(headers, azure::ID)?);
    let change = HeaderChange::Metadata(fields::metadata(headers)?);
    look(call, container, &conditions, lease).await?;
    let set = SetHeaders { preconditions: conditions.preconditions, lease, change, request: None };
    let info = call.shared.store.set_container(container, set).await.map_err(AzureError::of_container)?;
    Ok(changed(StatusCode::OK, &info))
}

pub(super) async fn delete(call: &Call, container: &ContainerName) -> Result<Response<BlobBody>, AzureError> {
    let headers = &call.head.headers;
    let conditions = conditions::of_write(headers)?;
    let lease = LeaseUse::Write(azure::id(headers, azure::ID)?);
    look(call, container, &conditions, lease).await?;
    let request = if conditions.hold_once() { retry::key(&call.head) } else { None };
    let delete = Delete { preconditions: conditions.preconditions, lease, request };
    call.shared.store.delete_container(container, delete).await.map_err(AzureError::of_container)?;
    Ok(response::empty(StatusCode::ACCEPTED, None, None))
}

/// Returns the container, or an error if it does not exist.
pub(super) async fn find(call: &Call, container: &ContainerName) -> Result<ContainerInfo, AzureError> {
    let found = call.shared.store.container(container).await.map_err(AzureError::of_container)?;
    found.ok_or_else(AzureError::container_not_found)
}

/// Checks the conditions that the store does not evaluate.
pub(super) async fn look(
    call: &Call,
    container: &ContainerName,
    conditions: &WriteConditions,
    lease: LeaseUse,
) -> Result<(), AzureError> {
    if !conditions.need_look() {
        return Ok(());
    }
    let info = find(call, container).await?;
    conditions.look(info.last_modified, info.lease.as_ref(), lease, call.shared.now())
}

fn changed(status: StatusCode, info: &ContainerInfo) -> Response<BlobBody> {
    response::empty(status, info.tag.as_ref(), info.last_modified)
}
