//! Tables and entities in the blob store.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::store::{Opened, Put, StoreError, StoreErrorKind, Upload};
use ifmatch_core::precondition::Preconditions;

pub(crate) mod entities;
pub(crate) mod garbage;
pub(crate) mod page;
pub(crate) mod partition;
pub(crate) mod tables;

/// Builds a write of these bytes.
pub(crate) fn put(content: String, preconditions: Preconditions) -> Put {
    let length = u64::try_from(content.len()).ok();
    let body = Upload::new(Full::new(Bytes::from(content)));
    Put { preconditions, length, ..Put::new(body) }
}

/// Returns `true` if the preconditions of a write are false.
pub(crate) fn is_refused(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. })
}

/// Reads a whole blob.
pub(crate) async fn bytes(mut opened: Opened) -> Result<Bytes, StoreError> {
    Ok(opened.source.read(None).await?.collect().await?.to_bytes())
}
