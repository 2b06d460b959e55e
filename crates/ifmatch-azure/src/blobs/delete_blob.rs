//! Delete Blob.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::Delete;

use super::write;
use crate::blocks::staging;
use crate::error::AzureError;
use crate::request::Write;
use crate::response;

const DELETED_PERMANENTLY: HeaderName = HeaderName::from_static("x-ms-delete-type-permanent");

pub(crate) async fn delete_blob(
    context: &Context,
    blob: &BlobPath,
    write: Write,
) -> Result<Response<BlobBody>, AzureError> {
    let Write { conditions, lease, request, .. } = write;
    write::check(context, blob, &conditions, lease).await?;
    let staged = staging::all(context, blob).await?;
    let delete = Delete { preconditions: conditions.preconditions, lease, request };
    match context.store.delete(blob, delete).await {
        Ok(()) => {
            staging::discard(&*context.store, staged).await;
            let mut response = response::empty(StatusCode::ACCEPTED, None, None);
            response.headers_mut().insert(DELETED_PERMANENTLY, HeaderValue::from_static("true"));
            Ok(response)
        }
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}
