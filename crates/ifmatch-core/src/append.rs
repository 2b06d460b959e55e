//! Appends: conditions on the position, and where a block may be written.

use thiserror::Error;

/// The conditions of an append (Azure's `x-ms-blob-condition-appendpos` and `x-ms-blob-condition-maxsize`).
///
/// They are true of one version of the content: evaluate them on the version that the append replaces, and require in the same
/// write that it is still current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendConditions {
    /// The length that the content must have before the append, in bytes.
    pub position: Option<u64>,
    /// Maximum length after the append, in bytes.
    pub max_size: Option<u64>,
}

/// The reason why an append isn't possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AppendFailure {
    /// The content has another length.
    #[error("the blob does not end at the position that the request requires")]
    Position,
    /// The content would become too long.
    #[error("the blob would be longer than the request allows")]
    MaxSize,
    /// The blob is sealed.
    #[error("the blob is sealed: nothing can be appended")]
    Sealed,
    /// The blob has as many blocks as the service allows.
    #[error("the append blob already has the maximum number of blocks")]
    BlockCount,
}

impl AppendConditions {
    /// Evaluates the conditions for appending `added` bytes to content of this length.
    ///
    /// # Errors
    /// A condition is false.
    ///
    /// ```
    /// use ifmatch_core::append::{AppendConditions, AppendFailure};
    ///
    /// let conditions = AppendConditions { position: Some(10), max_size: Some(12) };
    /// assert_eq!(conditions.evaluate(10, 2), Ok(()));
    /// assert_eq!(conditions.evaluate(10, 3), Err(AppendFailure::MaxSize));
    /// assert_eq!(conditions.evaluate(11, 1), Err(AppendFailure::Position));
    /// ```
    pub fn evaluate(&self, length: u64, added: u64) -> Result<(), AppendFailure> {
        if self.position.is_some_and(|position| position != length) {
            return Err(AppendFailure::Position);
        }
        let is_longer = |max: u64| length.checked_add(added).is_none_or(|sum| sum > max);
        if self.max_size.is_some_and(is_longer) {
            Err(AppendFailure::MaxSize)
        } else {
            Ok(())
        }
    }
}

/// The end of a file that begins with the content of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// Length of the file, in bytes.
    pub length: u64,
    /// `false` if another version, perhaps of another blob, may be in the file under a second name.
    pub has_one_name: bool,
}

impl FileEnd {
    /// Returns `true` if a block may be written behind the recorded length.
    ///
    /// Bytes that are there already may be recorded by a swap that is still on its way, or may not be on the disk after a failed
    /// sync. A second name may have a version that is also about to grow.
    ///
    /// ```
    /// use ifmatch_core::append::FileEnd;
    ///
    /// assert!(FileEnd { length: 7, has_one_name: true }.takes_append_at(7));
    /// assert!(!FileEnd { length: 8, has_one_name: true }.takes_append_at(7));
    /// assert!(!FileEnd { length: 7, has_one_name: false }.takes_append_at(7));
    /// ```
    pub const fn takes_append_at(&self, recorded: u64) -> bool {
        self.length == recorded && self.has_one_name
    }
}
