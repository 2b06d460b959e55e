//! Set Blob Tier, which has no effect: every blob is `Hot`.

use http::{Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Reading, StoreErrorKind};
use ifmatch_core::lease::{LeaseUse, SeenLease};

use crate::containers;
use crate::error::AzureError;
use crate::response;

pub(crate) async fn set_blob_tier(
    context: &Context,
    blob: &BlobPath,
    lease: LeaseUse,
) -> Result<Response<BlobBody>, AzureError> {
    let Some(opened) = context.store.open(blob, Reading::HEAD).await.map_err(AzureError::of_blob)? else {
        containers::find(context, &blob.container).await?;
        return Err(AzureError::blob_not_found());
    };
    SeenLease::check(opened.info.lease.as_ref(), lease)
        .map_err(|failure| AzureError::of_blob(StoreErrorKind::LeaseFailed(failure)))?;
    Ok(response::empty(StatusCode::OK, None, None))
}
