//! The container of a request.

use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::ContainerInfo;

use crate::error::AzureError;

/// Returns the container, or an error if it doesn't exist.
pub(crate) async fn container(
    context: &Context,
    container: &ContainerName,
) -> Result<ContainerInfo, AzureError> {
    let found = context
        .store
        .container(container)
        .await
        .map_err(AzureError::of_container)?;
    found.ok_or_else(AzureError::container_not_found)
}
