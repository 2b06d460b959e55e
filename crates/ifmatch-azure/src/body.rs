//! Bodies that are held in memory.

use bytes::Bytes;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::DocumentError;
use ifmatch_blob::headers::ContentMd5;
use ifmatch_blob::store::Upload;

use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::RequestDocument;

/// Reads a body into memory.
pub(crate) async fn read(
    context: &Context,
    document: RequestDocument,
    body: Upload,
) -> Result<Bytes, AzureError> {
    let RequestDocument {
        client,
        md5,
        crc64,
        length,
    } = document;
    let incomplete = |why: String| AzureError::bad_request("IncompleteBody", why);
    let other_length =
        || incomplete("the body is shorter or longer than Content-Length".to_owned());
    let bytes =
        context
            .documents
            .read(client, body, length)
            .await
            .map_err(|error| match error {
                DocumentError::TooLong(_) => other_length(),
                DocumentError::Crowded(crowded) => AzureError::crowded(crowded),
                DocumentError::Broken(error) => incomplete(error.to_string()),
            })?;
    if bytes.len() as u64 != length {
        return Err(other_length());
    }
    if md5.is_some_and(|md5| md5 != ContentMd5::of(&bytes)) {
        return Err(AzureError::md5_mismatch());
    }
    if crc64.is_some_and(|crc64| crc64 != Crc64::of(&bytes)) {
        Err(AzureError::crc64_mismatch())
    } else {
        Ok(bytes)
    }
}
