//! The keys of the index: `c/{container}` and `b/{container}/{blob}`.

use ifmatch_store::Key;

use crate::name::{BlobPath, ContainerName};
use crate::store::{StoreError, StoreErrorKind};

/// What the keys of containers begin with.
pub(super) const CONTAINERS: &str = "c/";
/// What the keys of blobs begin with.
pub(super) const BLOBS: &str = "b/";

/// The key of a blob's record.
pub(super) fn of_blob(blob: &BlobPath) -> Result<Key, StoreError> {
    key(format!("{}{}", of_blobs_in(&blob.container), blob.name))
}

/// The key of a container's record.
pub(super) fn of_container(container: &ContainerName) -> Result<Key, StoreError> {
    key(format!("{CONTAINERS}{container}"))
}

/// What the keys of a container's blobs begin with.
pub(super) fn of_blobs_in(container: &ContainerName) -> String {
    format!("{BLOBS}{container}/")
}

/// Names are shorter than keys, and without NUL, so that this does not fail.
fn key(text: String) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}
