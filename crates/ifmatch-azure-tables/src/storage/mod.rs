//! Tables and entities in the blob store.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::BlobStore;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    ContentChange, Current, Opened, Put, StoreError, StoreErrorKind, Update, Updated, Upload,
};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;

use crate::error::TableError;

pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod entities;
pub(crate) mod garbage;
pub(crate) mod page;
pub(crate) mod partition;
pub(crate) mod tables;

/// Builds a write of these bytes.
pub(crate) fn put(content: String, preconditions: Preconditions) -> Put {
    let length = u64::try_from(content.len()).ok();
    let body = Upload::new(Full::new(Bytes::from(content)));
    Put {
        preconditions,
        length,
        ..Put::new(body)
    }
}

/// Changes a blob by a function of its content, and returns what the function has found in its last call.
pub(crate) async fn update<T: Send + 'static>(
    store: &dyn BlobStore,
    blob: &BlobPath,
    change: impl Fn(Option<&Current>) -> (ContentChange, T) + Send + Sync + 'static,
) -> Result<(Updated, T), StoreError> {
    let found = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&found);
    let update = Update::new(move |current| {
        let (change, result) = change(current);
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        change
    });
    let updated = store.update(blob, update).await?;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    found
        .map(|found| (updated, found))
        .ok_or_else(|| StoreErrorKind::Unavailable.into())
}

/// Returns a random number.
pub(crate) fn random() -> Result<u64, StoreError> {
    ifmatch_runtime::nonce().map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))
}

/// Draws an id that no other table or batch has.
pub(crate) fn new_id() -> Result<String, StoreError> {
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// Returns `true` if the preconditions of a write are false.
pub(crate) fn is_refused(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. })
}

/// Reads a whole blob.
pub(crate) async fn bytes(mut opened: Opened) -> Result<Bytes, StoreError> {
    Ok(opened.source.read(None).await?.collect().await?.to_bytes())
}

/// Returns the generation of a version, which each store of tables must number.
pub(crate) fn numbered(generation: Option<Revision>) -> Result<Revision, TableError> {
    let why = "the store does not number its writes";
    let unsupported = || StoreError::new(StoreErrorKind::Unsupported, why);
    Ok(generation.ok_or_else(unsupported)?)
}
