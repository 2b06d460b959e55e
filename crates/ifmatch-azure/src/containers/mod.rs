//! Operations on containers.

mod list;

use http::{HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{ContainerInfo, Delete, HeaderChange, SetHeaders};
use ifmatch_core::lease::{LeaseUse, SeenLease};

use crate::error::AzureError;
use crate::request::conditions::WriteConditions;
use crate::request::{ContainerWrite, Lease};
use crate::response::{self, headers};

pub(crate) use list::{list_blobs, list_containers};

pub(crate) async fn create_container(
    context: &Context,
    container: &ContainerName,
    headers: BlobHeaders,
) -> Result<Response<BlobBody>, AzureError> {
    let created = context.store.create_container(container, headers).await.map_err(AzureError::of_container)?;
    Ok(changed(StatusCode::CREATED, &created))
}

/// Get Container Properties and Get Container Metadata.
pub(crate) async fn get_container(
    context: &Context,
    container: &ContainerName,
    lease: LeaseUse,
) -> Result<Response<BlobBody>, AzureError> {
    let info = find(context, container).await?;
    SeenLease::check(info.lease.as_ref(), lease).map_err(AzureError::of_container)?;
    let mut response = changed(StatusCode::OK, &info);
    headers::add_metadata(response.headers_mut(), &info.headers);
    headers::add_lease(response.headers_mut(), info.lease.as_ref());
    // The SDK for C++ reads both without asking if they are there.
    for name in ["x-ms-has-immutability-policy", "x-ms-has-legal-hold"] {
        response.headers_mut().insert(name, HeaderValue::from_static("false"));
    }
    Ok(response)
}

pub(crate) async fn set_container_metadata(
    context: &Context,
    container: &ContainerName,
    write: ContainerWrite,
    change: HeaderChange,
) -> Result<Response<BlobBody>, AzureError> {
    let ContainerWrite { conditions, lease, request } = write;
    check(context, container, &conditions, lease).await?;
    let set = SetHeaders { preconditions: conditions.preconditions, lease, change, request };
    let info = context.store.set_container(container, set).await.map_err(AzureError::of_container)?;
    Ok(changed(StatusCode::OK, &info))
}

pub(crate) async fn lease_container(
    context: &Context,
    container: &ContainerName,
    lease: Lease,
) -> Result<Response<BlobBody>, AzureError> {
    let Lease { conditions, request } = lease;
    let action = request.action;
    check(context, container, &conditions, LeaseUse::Read(None)).await?;
    let leased = context.store.lease_container(container, request).await.map_err(AzureError::of_container)?;
    Ok(response::leased(action, &leased))
}

pub(crate) async fn delete_container(
    context: &Context,
    container: &ContainerName,
    write: ContainerWrite,
) -> Result<Response<BlobBody>, AzureError> {
    let ContainerWrite { conditions, lease, request } = write;
    check(context, container, &conditions, lease).await?;
    let delete = Delete { preconditions: conditions.preconditions, lease, request };
    context.store.delete_container(container, delete).await.map_err(AzureError::of_container)?;
    Ok(response::empty(StatusCode::ACCEPTED, None, None))
}

/// Returns the container, or an error if it does not exist.
pub(crate) async fn find(context: &Context, container: &ContainerName) -> Result<ContainerInfo, AzureError> {
    let found = context.store.container(container).await.map_err(AzureError::of_container)?;
    found.ok_or_else(AzureError::container_not_found)
}

/// Checks the conditions that the store does not evaluate.
async fn check(
    context: &Context,
    container: &ContainerName,
    conditions: &WriteConditions,
    lease: LeaseUse,
) -> Result<(), AzureError> {
    if !conditions.need_check() {
        return Ok(());
    }
    let info = find(context, container).await?;
    conditions.check(info.last_modified, info.lease.as_ref(), lease)
}

fn changed(status: StatusCode, info: &ContainerInfo) -> Response<BlobBody> {
    response::empty(status, info.tag.as_ref(), info.last_modified)
}
