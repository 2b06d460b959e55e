//! Put Blob.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Md5Use, Put, Upload};

use super::write;
use crate::blocks::staging;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::PutBlob;
use crate::request::headers::{CONTENT_CRC64, CONTENT_MD5};

pub(crate) async fn put_blob(
    context: &Context,
    blob: &BlobPath,
    put: PutBlob,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let PutBlob { write, headers, crc64, length } = put;
    write::check(context, blob, &write.conditions, write.lease).await?;
    let staged = staging::all(context, blob).await?;
    let (upload, watch) = Crc64::watch(crc64, upload);
    let put = write::put(&write, upload, context.max_body);
    let put = Put { headers: *headers, length: Some(length), md5: Md5Use::Computed, ..put };
    let written = context.store.put(blob, put).await;
    let written = written.map_err(|error| watch.explain(error, |error| write::rejected(&write, error)))?;
    write::confirm(context, blob, &write, &written).await?;
    staging::discard(&*context.store, staged).await;
    let mut response = write::stored(&written);
    response.headers_mut().extend(crc64.map(|crc64| (CONTENT_CRC64, crc64.to_header())));
    response.headers_mut().extend(written.md5.map(|md5| (CONTENT_MD5, md5.to_header())));
    Ok(response)
}
