//! Lease ids.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

/// The id of a lease: a UUID.
///
/// ```
/// use ifmatch_core::lease::LeaseId;
///
/// let id: LeaseId = "936DA01F-9ABD-4d9d-80C7-02AF85C822A8".parse()?;
/// assert_eq!(id.to_string(), "936da01f-9abd-4d9d-80c7-02af85c822a8");
/// # Ok::<(), ifmatch_core::lease::InvalidLeaseId>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId([u8; 16]);

/// The text is not a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is a GUID such as 936da01f-9abd-4d9d-80c7-02af85c822a8")]
pub struct InvalidLeaseId;

impl LeaseId {
    /// Creates a random UUID (RFC 9562 §5.4) from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Builder::from_random_bytes(bytes).into_uuid().into()
    }
}

impl From<Uuid> for LeaseId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid.into_bytes())
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(Uuid::from_bytes_ref(&self.0), f)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
