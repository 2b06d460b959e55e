//! The MD5 of a request's body or of a blob.

use http::{HeaderMap, HeaderName};

use super::error::AzureError;
use super::fields;
use ifmatch_blob::headers::ContentMd5;

/// MD5 of the accompanying body or, in a response without a range, of the whole blob.
pub(super) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// MD5 of the whole blob.
pub(super) const BLOB_CONTENT_MD5: HeaderName = HeaderName::from_static("x-ms-blob-content-md5");

/// Returns the MD5 in a field, if present.
pub(super) fn given(headers: &HeaderMap, name: &HeaderName) -> Result<Option<ContentMd5>, AzureError> {
    let md5 = fields::one(headers, name)?.filter(|text| !text.is_empty()).map(str::parse).transpose();
    md5.map_err(|error| AzureError::bad_request("InvalidMd5", format!("{name}: {error}")))
}

/// The error for a body that does not match its MD5.
pub(super) fn mismatch() -> AzureError {
    AzureError::bad_request("Md5Mismatch", "the body does not match the MD5 in the request: send it again")
}
