//! Lease Blob.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_core::lease::LeaseUse;

use super::write;
use crate::error::AzureError;
use crate::request::Lease;
use crate::response;

pub(crate) async fn lease_blob(
    context: &Context,
    blob: &BlobPath,
    lease: Lease,
) -> Result<Response<BlobBody>, AzureError> {
    let Lease { conditions, request } = lease;
    let action = request.action;
    write::check(context, blob, &conditions, LeaseUse::Read(None)).await?;
    match context.store.lease(blob, request).await {
        Ok(leased) => Ok(response::leased(action, &leased)),
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}
