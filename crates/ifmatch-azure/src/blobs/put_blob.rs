//! Put Blob.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Md5Use, Put, Upload};

use super::write;
use crate::blocks::staging;
use crate::error::AzureError;
use crate::request::PutBlob;
use crate::request::headers::CONTENT_MD5;

pub(crate) async fn put_blob(
    context: &Context,
    blob: &BlobPath,
    put: PutBlob,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let PutBlob { write, headers, length } = put;
    write::check(context, blob, &write.conditions, write.lease).await?;
    let staged = staging::all(context, blob).await?;
    let put = write::put(&write, upload, context.max_body);
    let put = Put { headers, length: Some(length), md5: Md5Use::Computed, ..put };
    let written = context.store.put(blob, put).await.map_err(|error| write::rejected(&write, error))?;
    write::confirm(context, blob, &write, &written).await?;
    staging::discard(&*context.store, staged).await;
    let mut response = write::stored(&written);
    response.headers_mut().extend(written.md5.map(|md5| (CONTENT_MD5, md5.to_header())));
    Ok(response)
}
