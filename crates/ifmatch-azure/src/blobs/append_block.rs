//! Append Block, Append Block From URL and Append Blob Seal.
//!
//! An append writes a new version: the bytes of the current one, then the block. The conditions and the position are evaluated on
//! that version, and the write requires that it is still current, so an append is one swap like any other write. If another write
//! was faster, the append starts over with the version that it made.

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{Append, BlobHeaders, ContentMd5};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobInfo, BoxError, HeaderChange, Opened, Put, Reading, SetHeaders, StoreError, StoreErrorKind, Upload,
};
use ifmatch_core::append::{AppendConditions, AppendFailure};
use ifmatch_core::precondition::Preconditions;

use super::write;
use crate::blobs;
use crate::blocks;
use crate::containers;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::copy::AppendFromUrl;
use crate::request::headers::{CONTENT_CRC64, CONTENT_MD5};
use crate::request::{AppendBlock, RequestDocument, SealBlob, WriteHeaders};
use crate::response;
use crate::response::headers::{APPEND_OFFSET, BLOCK_COUNT, SEALED};

/// Maximum number of blocks of a blob.
const MAX_BLOCKS: u32 = 50_000;
/// Maximum number of attempts if other writes are faster.
const TRIES: usize = 100;
/// Maximum number of attempts in which the current version wasn't read to its end.
const UNREAD_TRIES: usize = 5;

pub(crate) async fn append_block(
    context: &Context,
    blob: &BlobPath,
    append: AppendBlock,
    upload: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let AppendBlock { write, conditions, block } = append;
    let md5 = block.md5;
    let block = blocks::read(context, block, upload).await?;
    append_bytes(context, blob, &write, conditions, (block, md5)).await
}

pub(crate) async fn append_block_from_url(
    context: &Context,
    blob: &BlobPath,
    append: AppendFromUrl,
) -> Result<Response<BlobBody>, AzureError> {
    let AppendFromUrl { write, conditions, part, client } = append;
    let (md5, crc64) = (part.md5, part.crc64);
    let (body, length) = blobs::open_part(context, part).await?;
    let block = blocks::read(context, RequestDocument { client, md5, crc64, length }, body).await?;
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
    let length = block.len() as u64;
    write::check(context, blob, &write.conditions, write.lease).await?;
    let mut unread = 0;
    for _ in 0..TRIES {
        let current = Current::find(context, blob, write, Reading::WHOLE).await?;
        if current.append.sealed {
            return Err(AzureError::new(
                StatusCode::CONFLICT,
                "BlobIsSealed",
                "the blob is sealed: nothing can be appended",
            ));
        }
        let offset = current.opened.info.length;
        conditions.evaluate(offset, length).map_err(unmet)?;
        if current.append.blocks >= MAX_BLOCKS {
            let message = "the append blob already has 50,000 blocks, the maximum";
            return Err(AzureError::new(StatusCode::CONFLICT, "BlockCountExceedsLimit", message));
        }
        let total = offset.checked_add(length).filter(|total| *total <= context.max_body);
        let total = total.ok_or_else(|| AzureError::too_large(context.max_body))?;
        let next = Append { blocks: current.append.blocks + 1, ..current.append };
        // The longer content has neither the shorter one's MD5 nor its checksum.
        let kept = current.opened.info.headers.clone();
        let headers = BlobHeaders { append: Some(next), content_md5: None, checksum: None, ..kept };
        let preconditions = current.preconditions;
        let body = body(current.opened, block.clone()).await?;
        let put = Put {
            preconditions,
            headers,
            length: Some(total),
            request: None,
            keeps_tags: true,
            ..write::put(write, body, context.max_body)
        };
        match context.store.put(blob, put).await {
            Ok(written) => {
                let mut response = write::stored(&written);
                let headers = response.headers_mut();
                headers.insert(APPEND_OFFSET, offset.into());
                headers.insert(BLOCK_COUNT, next.blocks.into());
                headers.extend(md5.map(|md5| (CONTENT_MD5, md5.to_header())));
                headers.insert(CONTENT_CRC64, Crc64::of(&block).to_header());
                return Ok(response);
            }
            // The conditions are decided again on the new version.
            Err(error) if error.kind().is_overtaken() => {}
            // The version before the block may have been replaced while it was read.
            Err(error) if error.is_of_source() && unread < UNREAD_TRIES => unread += 1,
            Err(error) => return Err(write::explain(context, blob, error).await),
        }
    }
    Err(AzureError::busy())
}

pub(crate) async fn seal_blob(
    context: &Context,
    blob: &BlobPath,
    seal: SealBlob,
) -> Result<Response<BlobBody>, AzureError> {
    let SealBlob { write, conditions } = seal;
    write::check(context, blob, &write.conditions, write.lease).await?;
    for _ in 0..TRIES {
        let current = Current::find(context, blob, &write, Reading::HEAD).await?;
        conditions.evaluate(current.opened.info.length, 0).map_err(unmet)?;
        let change = HeaderChange::Append(Append { sealed: true, ..current.append });
        let set = SetHeaders { preconditions: current.preconditions, lease: write.lease, ..SetHeaders::new(change) };
        match context.store.set_headers(blob, set).await {
            Ok(written) => {
                let mut response = response::empty(StatusCode::OK, written.tag.as_ref(), Some(written.last_modified));
                response.headers_mut().insert(SEALED, HeaderValue::from_static("true"));
                return Ok(response);
            }
            Err(error) if error.kind().is_overtaken() => {}
            Err(error) => return Err(write::explain(context, blob, error).await),
        }
    }
    Err(AzureError::busy())
}

/// Rejects an operation on blocks if there is an append blob.
pub(crate) fn require_block_blob(info: Option<&BlobInfo>) -> Result<(), AzureError> {
    if info.is_some_and(|info| info.headers.append.is_some()) { Err(AzureError::other_type()) } else { Ok(()) }
}

/// The version to which a block is appended.
struct Current {
    opened: Opened,
    append: Append,
    /// Require this version to be still current when the write takes place.
    preconditions: Preconditions,
}

impl Current {
    /// Finds the blob, and evaluates the conditions of a write on it, which the swap then requires to be the current version.
    async fn find(
        context: &Context,
        blob: &BlobPath,
        write: &WriteHeaders,
        reading: Reading,
    ) -> Result<Self, AzureError> {
        let Some(opened) = context.store.open(blob, reading).await.map_err(AzureError::of_blob)? else {
            containers::find(context, &blob.container).await?;
            return Err(AzureError::blob_not_found());
        };
        let info = &opened.info;
        write::evaluate(info, write)?;
        let append = info.headers.append.ok_or_else(AzureError::other_type)?;
        let tag = info.tag.clone().filter(|tag| !tag.is_weak());
        let tag = tag.ok_or_else(|| {
            AzureError::of_blob(StoreError::new(StoreErrorKind::Unsupported, "the store does not provide strong tags"))
        })?;
        let preconditions = Preconditions::unchanged(Some(&tag));
        Ok(Self { opened, append, preconditions })
    }
}

/// Returns the bytes of the version, followed by the block.
async fn body(mut opened: Opened, block: Bytes) -> Result<Upload, AzureError> {
    let current = opened.source.read(None).await.map_err(AzureError::of_blob)?;
    let frames = stream::try_unfold((opened, current, Some(block)), |(opened, mut current, mut block)| async move {
        if block.is_some()
            && let Some(frame) = current.frame().await
        {
            return Ok(Some((frame?, (opened, current, block))));
        }
        let last = block.take().map(Frame::data);
        Ok::<_, BoxError>(last.map(|frame| (frame, (opened, current, block))))
    });
    Ok(Upload::new(StreamBody::new(frames)))
}

fn unmet(failure: AppendFailure) -> AzureError {
    let code = match failure {
        AppendFailure::Position => "AppendPositionConditionNotMet",
        AppendFailure::MaxSize => "MaxBlobSizeConditionNotMet",
    };
    AzureError::new(StatusCode::PRECONDITION_FAILED, code, failure.to_string())
}
