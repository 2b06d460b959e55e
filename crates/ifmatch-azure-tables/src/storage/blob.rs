//! Reading and writing whole blobs on conditions.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::store::{Opened, Put, StoreError, StoreErrorKind, Upload};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;

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

/// Requires that there is no blob.
pub(crate) fn absent() -> Preconditions {
    Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() }
}

/// Requires that the blob has this tag.
pub(crate) fn exactly(tag: &EntityTag) -> Preconditions {
    Preconditions { if_match: Some(TagList::Tags(vec![tag.clone()])), ..Preconditions::default() }
}
