//! Put Block and Put Block From URL.

use http::{Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Md5Use, Put, Reading, Upload};
use ifmatch_core::lease::{LeaseUse, SeenLease};

use crate::block_storage::staging::BlobPaths;
use crate::copy_source::open_part;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::PutBlock;
use crate::request::copy::CopyBlock;
use crate::request::headers::{CONTENT_CRC64, CONTENT_MD5};
use crate::response;
use crate::write::require_block_blob;

/// Put Block.
pub(crate) async fn put_block(
    context: &Context,
    blob: &BlobPath,
    block: PutBlock,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let PutBlock {
        id,
        lease,
        md5: content_md5,
        crc64,
        length,
        limit,
    } = block;
    let paths = BlobPaths::of(context, blob).await?;
    check_lease(context, blob, lease).await?;
    let store = &*context.store;
    if paths
        .any(store)
        .await?
        .is_some_and(|other| other.len() != id.len())
    {
        let message = "all block ids of a blob must have the same length";
        return Err(AzureError::bad_request("InvalidBlobOrBlock", message));
    }
    // Blocks never report an MD5, so it is computed only to verify the request's.
    let md5 = if content_md5.is_some() {
        Md5Use::Computed
    } else {
        Md5Use::AsGiven
    };
    let headers = BlobHeaders {
        content_md5,
        ..BlobHeaders::default()
    };
    let (upload, watch) = Crc64::watch(crc64, upload);
    let put = Put {
        headers,
        md5,
        length: Some(length),
        limit,
        ..Put::new(upload)
    };
    let written = store.put(&paths.block(&id)?, put).await;
    written.map_err(|error| watch.explain(error, AzureError::of_blob))?;
    let mut response = response::empty(StatusCode::CREATED, None, None);
    response
        .headers_mut()
        .extend(crc64.map(|crc64| (CONTENT_CRC64, crc64.to_header())));
    response
        .headers_mut()
        .extend(content_md5.map(|md5| (CONTENT_MD5, md5.to_header())));
    response::set_not_encrypted(&mut response);
    Ok(response)
}

/// Checks the type and the lease of the blob, which may not exist yet. Put Block List checks it again, in the same step as the
/// write.
async fn check_lease(
    context: &Context,
    blob: &BlobPath,
    r#use: LeaseUse,
) -> Result<(), AzureError> {
    let opened = context
        .store
        .open(blob, Reading::HEAD)
        .await
        .map_err(AzureError::of_blob)?;
    let info = opened.map(|opened| opened.info);
    SeenLease::check(info.as_ref().and_then(|info| info.lease.as_ref()), r#use)
        .map_err(AzureError::of_blob)?;
    require_block_blob(info.as_ref())
}

/// Put Block From URL.
pub(crate) async fn put_block_from_url(
    context: &Context,
    blob: &BlobPath,
    block: CopyBlock,
) -> Result<Response<BlobBody>, AzureError> {
    let CopyBlock { id, lease, part } = block;
    let (md5, crc64, limit) = (part.md5, part.crc64, part.limit);
    let (body, length) = open_part(context, part).await?;
    put_block(
        context,
        blob,
        PutBlock {
            id,
            lease,
            md5,
            crc64,
            length,
            limit,
        },
        body,
    )
    .await
}
