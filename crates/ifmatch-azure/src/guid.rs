//! Random GUIDs.

use ifmatch_runtime::random_bytes;
use uuid::{Builder, Uuid};

/// Returns a random GUID, if the platform provides randomness.
pub(crate) fn random() -> Option<Uuid> {
    Some(Builder::from_random_bytes(random_bytes().ok()?).into_uuid())
}
