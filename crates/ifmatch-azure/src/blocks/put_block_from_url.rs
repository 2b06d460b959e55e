//! Put Block From URL.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::Upload;
use ifmatch_core::range::{Limits, Selection};

use super::put_block;
use crate::blobs;
use crate::error::AzureError;
use crate::request::PutBlock;
use crate::request::copy::CopyBlock;

pub(crate) async fn put_block_from_url(
    context: &Context,
    blob: &BlobPath,
    block: CopyBlock,
) -> Result<Response<BlobBody>, AzureError> {
    let CopyBlock { id, lease, source, range, md5, crc64, limit } = block;
    let mut opened = blobs::open_source(context, &source).await?;
    let length = opened.info.length;
    let range = match range {
        None => 0..length,
        Some(text) => match Selection::parse(text.as_bytes(), length, Limits { max_ranges: 1 }) {
            Selection::Parts(parts) if parts.len() == 1 => parts[0].start()..parts[0].end() + 1,
            Selection::Unsatisfiable => return Err(AzureError::invalid_range(length)),
            _ => return Err(AzureError::invalid_header("x-ms-source-range", "must be a range, such as bytes=0-1023")),
        },
    };
    if range.is_empty() {
        return Err(AzureError::invalid_header("x-ms-source-range", "a block has at least one byte"));
    }
    let length = range.end - range.start;
    if length > limit {
        return Err(AzureError::too_large(limit));
    }
    let body = opened.source.read(Some(range)).await.map_err(AzureError::of_blob)?;
    put_block(context, blob, PutBlock { id, lease, md5, crc64, length, limit }, Upload::new(body)).await
}
