//! Append Block, Append Block From URL and Append Blob Seal.
//!
//! The store decides them: appends that wait at one blob are made in turn, each on the version that the one before leaves.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::ContentMd5;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{self, HeaderChange, SetHeaders, Upload};
use ifmatch_core::append::AppendConditions;

use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::copy::AppendFromUrl;
use crate::request::headers::{CONTENT_CRC64, CONTENT_MD5};
use crate::request::{AppendBlock, RequestDocument, SealBlob, WriteHeaders};
use crate::response::headers::{APPEND_OFFSET, BLOCK_COUNT, SEALED};
use crate::{body, copy_source, response, write};

/// Maximum number of blocks of a blob.
const MAX_BLOCKS: u32 = 50_000;

/// Append Block.
pub(crate) async fn append_block(
    context: &Context,
    blob: &BlobPath,
    append: AppendBlock,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let AppendBlock {
        write,
        conditions,
        block,
    } = append;
    let md5 = block.md5;
    let block = body::read(context, block, upload).await?;
    append_bytes(context, blob, &write, conditions, (block, md5)).await
}

/// Append Block From URL.
pub(crate) async fn append_block_from_url(
    context: &Context,
    blob: &BlobPath,
    append: AppendFromUrl,
) -> Result<Response<BlobBody>, AzureError> {
    let AppendFromUrl {
        write,
        conditions,
        part,
        client,
    } = append;
    let (md5, crc64) = (part.md5, part.crc64);
    let (body, length) = copy_source::open_part(context, part).await?;
    let block = body::read(
        context,
        RequestDocument {
            client,
            md5,
            crc64,
            length,
        },
        body,
    )
    .await?;
    append_bytes(context, blob, &write, conditions, (block, md5)).await
}

/// Appends a block that had this MD5 in its request.
async fn append_bytes(
    context: &Context,
    blob: &BlobPath,
    write: &WriteHeaders,
    conditions: AppendConditions,
    (block, md5): (Bytes, Option<ContentMd5>),
) -> Result<Response<BlobBody>, AzureError> {
    write::check(context, blob, &write.conditions, write.lease).await?;
    let append = store::AppendBlock {
        preconditions: write.conditions.preconditions.clone(),
        if_tags: write.conditions.if_tags.clone(),
        lease: write.lease,
        conditions,
        max_blocks: MAX_BLOCKS,
        limit: context.max_body,
        ..store::AppendBlock::new(block.clone())
    };
    let appended = match context.store.append(blob, append).await {
        Ok(appended) => appended,
        Err(error) => return Err(write::explain(context, blob, error).await),
    };
    let mut response = write::stored(&appended.written);
    let headers = response.headers_mut();
    headers.insert(APPEND_OFFSET, appended.offset.into());
    headers.insert(BLOCK_COUNT, appended.blocks.into());
    headers.extend(md5.map(|md5| (CONTENT_MD5, md5.to_header())));
    headers.insert(CONTENT_CRC64, Crc64::of(&block).to_header());
    Ok(response)
}

/// Append Blob Seal.
pub(crate) async fn seal_blob(
    context: &Context,
    blob: &BlobPath,
    seal: SealBlob,
) -> Result<Response<BlobBody>, AzureError> {
    let SealBlob { write, conditions } = seal;
    write::check(context, blob, &write.conditions, write.lease).await?;
    let set = SetHeaders {
        preconditions: write.conditions.preconditions.clone(),
        if_tags: write.conditions.if_tags.clone(),
        lease: write.lease,
        ..SetHeaders::new(HeaderChange::Seal(conditions))
    };
    match context.store.set_headers(blob, set).await {
        Ok(written) => {
            let mut response = response::empty(
                StatusCode::OK,
                written.tag.as_ref(),
                Some(written.last_modified),
            );
            response
                .headers_mut()
                .insert(SEALED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}
