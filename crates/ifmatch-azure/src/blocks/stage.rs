//! Put Block.

use http::{Response, StatusCode};
use ifmatch_core::lease::{self, LeaseUse, azure};

use super::super::error::AzureError;
use super::super::{Call, fields, md5, response};
use super::{BlockId, MAX_ID, Shelf};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Md5Use, Put, Reading, StoreErrorKind, Upload};

const BLOCK_ID: &str = "blockid";
/// Maximum length of a block, in bytes: 4,000 MiB.
const MAX_BLOCK: u64 = 4000 * 1024 * 1024;

pub(crate) async fn put_block(
    call: &Call,
    blob: &BlobPath,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let headers = &call.head.headers;
    let id = id(call)?;
    let lease = LeaseUse::Write(azure::id(headers, azure::ID)?);
    let content_md5 = md5::given(headers, &md5::CONTENT_MD5)?;
    let (length, limit) = (fields::length(headers)?, call.shared.max_body.min(MAX_BLOCK));
    if length == 0 {
        return Err(AzureError::invalid_field("content-length", "a block has at least one byte"));
    }
    if length > limit {
        return Err(AzureError::too_large(limit));
    }
    let shelf = Shelf::of(call, blob).await?;
    check_lease(call, blob, lease).await?;
    let store = &*call.shared.store;
    if shelf.any(store).await?.is_some_and(|other| other.0.len() != id.0.len()) {
        let message = "all block ids of a blob must have the same length";
        return Err(AzureError::bad_request("InvalidBlobOrBlock", message));
    }
    // Blocks never report an MD5, so it is computed only to verify the request's.
    let md5 = if content_md5.is_some() { Md5Use::Computed } else { Md5Use::AsGiven };
    let headers = BlobHeaders { content_md5, ..BlobHeaders::default() };
    let put = Put { headers, md5, length: Some(length), limit, ..Put::new(upload()) };
    store.put(&shelf.block(&id)?, put).await.map_err(AzureError::of_blob)?;
    let mut response = response::empty(StatusCode::CREATED, None, None);
    response.headers_mut().extend(content_md5.map(|md5| (md5::CONTENT_MD5, md5.to_header())));
    response::tell_encryption(&mut response);
    Ok(response)
}

fn id(call: &Call) -> Result<BlockId, AzureError> {
    let missing = || AzureError::bad_request("MissingRequiredQueryParameter", "blockid is required");
    let text = call.query.get(BLOCK_ID).filter(|text| !text.is_empty()).ok_or_else(missing)?;
    let rule = format!("must be the base64 of 1 to {MAX_ID} bytes");
    BlockId::from_base64(text).ok_or_else(|| AzureError::invalid_parameter(BLOCK_ID, &rule))
}

/// Checks the lease of the blob, which may not exist yet. Put Block List checks it again, in the same step as the
/// write.
async fn check_lease(call: &Call, blob: &BlobPath, r#use: LeaseUse) -> Result<(), AzureError> {
    let opened = call.shared.store.open(blob, Reading::HEAD).await.map_err(AzureError::of_blob)?;
    let held = opened.and_then(|opened| opened.info.lease);
    lease::check(held.as_ref(), r#use, call.shared.now())
        .map_err(|failure| AzureError::of_blob(StoreErrorKind::LeaseFailed(failure)))
}
