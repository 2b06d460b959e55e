//! Changing the content of a blob by a function of it.

use std::fmt;

use bytes::Bytes;
use ifmatch_core::record::Revision;

use super::write::Written;

/// A change of a small blob by a function of its content, in one step. The blob's container is created if necessary.
///
/// The store calls the function with the current content, and again if another write was faster. Changes of one blob that wait
/// in one process take turns, so none is refused because others are faster.
pub struct Update {
    /// Computes the change.
    pub change: Box<ChangeOf>,
    /// Maximum length of the current content, in bytes. Longer content fails with
    /// [`StoreErrorKind::TooLarge`](crate::store::StoreErrorKind::TooLarge).
    pub limit: u64,
}

/// Computes a change from the current content, or from `None` if there is no such blob.
pub type ChangeOf = dyn Fn(Option<&Current>) -> ContentChange + Send + Sync;

/// The current content of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Current {
    /// The bytes.
    pub bytes: Bytes,
    /// The number of the write that created the version, if the store numbers its writes.
    pub generation: Option<Revision>,
}

/// A change of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentChange {
    /// Replaces it, or creates the blob, without header fields.
    Replace(Bytes),
    /// Deletes the blob.
    Delete,
    /// Changes nothing.
    Keep,
}

/// The effect of an [`Update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// The blob has a new version.
    Replaced(Written),
    /// The blob was deleted.
    Deleted,
    /// Nothing was changed.
    Kept,
}

impl Update {
    /// Creates a change without a limit.
    pub fn new(change: impl Fn(Option<&Current>) -> ContentChange + Send + Sync + 'static) -> Self {
        Self {
            change: Box::new(change),
            limit: u64::MAX,
        }
    }
}

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
