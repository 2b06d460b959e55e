//! Set Blob Metadata and Set Blob Properties.

use http::{Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{HeaderChange, SetHeaders};

use super::write;
use crate::error::AzureError;
use crate::request::Write;
use crate::response;

pub(crate) async fn set_blob_headers(
    context: &Context,
    blob: &BlobPath,
    write: Write,
    change: HeaderChange,
) -> Result<Response<BlobBody>, AzureError> {
    let Write { conditions, lease, request, .. } = write;
    let is_metadata = matches!(change, HeaderChange::Metadata(_));
    write::check(context, blob, &conditions, lease).await?;
    let set = SetHeaders { preconditions: conditions.preconditions, lease, change, request };
    match context.store.set_headers(blob, set).await {
        Ok(written) => {
            let mut response = response::empty(StatusCode::OK, written.tag.as_ref(), Some(written.last_modified));
            if is_metadata {
                response::set_not_encrypted(&mut response);
            }
            Ok(response)
        }
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}
