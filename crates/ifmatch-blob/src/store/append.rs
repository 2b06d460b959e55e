//! Appending to a blob.

use bytes::Bytes;
use ifmatch_core::append::{AppendConditions, AppendFailure};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;

use super::write::Written;
use crate::error::{StoreError, StoreErrorKind};
use crate::headers::{Append, BlobHeaders};
use crate::tags::TagCondition;

/// A block to append to an append blob, in an existing container.
///
/// A retry appends the block again, unless the request names a position: if the first attempt took effect, the retry is
/// refused with [`AppendFailure::Position`], and the bytes at the position tell whose block is there.
#[derive(Clone, Debug)]
pub struct AppendBlock {
    /// The block.
    pub block: Bytes,
    /// The request's conditions on the version.
    pub preconditions: Preconditions,
    /// The request's condition on the tags. If it is false, so is the condition [`Precondition::IfMatch`](ifmatch_core::precondition::Precondition::IfMatch).
    pub if_tags: Option<TagCondition>,
    /// The lease id of the request.
    pub lease: LeaseUse,
    /// The request's conditions on the position and the length.
    pub conditions: AppendConditions,
    /// Maximum number of blocks. One more fails with [`AppendFailure::BlockCount`].
    pub max_blocks: u32,
    /// Maximum length of the blob, in bytes. A longer one fails with [`StoreErrorKind::TooLarge`].
    pub limit: u64,
}

impl AppendBlock {
    /// Creates an unconditional append without limits.
    pub fn new(block: Bytes) -> Self {
        Self {
            block,
            preconditions: Preconditions::NONE,
            if_tags: None,
            lease: LeaseUse::default(),
            conditions: AppendConditions::default(),
            max_blocks: u32::MAX,
            limit: u64::MAX,
        }
    }

    /// Returns the header fields and the length after appending to a blob with these fields and this length.
    ///
    /// # Errors
    /// [`StoreErrorKind::OtherType`] if it isn't an append blob; [`StoreErrorKind::AppendFailed`]; [`StoreErrorKind::TooLarge`].
    pub fn after(&self, kept: &BlobHeaders, length: u64) -> Result<(BlobHeaders, u64), StoreError> {
        let append = kept.append.ok_or(StoreErrorKind::OtherType)?;
        let failed = |failure| StoreError::from(StoreErrorKind::AppendFailed(failure));
        if append.sealed {
            return Err(failed(AppendFailure::Sealed));
        }
        let added = self.block.len() as u64;
        self.conditions.evaluate(length, added).map_err(failed)?;
        if append.blocks >= self.max_blocks {
            return Err(failed(AppendFailure::BlockCount));
        }
        let total = length
            .checked_add(added)
            .filter(|total| *total <= self.limit);
        let total = total.ok_or(StoreErrorKind::TooLarge { limit: self.limit })?;
        let append = Some(Append {
            blocks: append.blocks + 1,
            ..append
        });
        // The longer content has neither the shorter one's MD5 nor its checksum.
        Ok((
            BlobHeaders {
                append,
                content_md5: None,
                checksum: None,
                ..kept.clone()
            },
            total,
        ))
    }
}

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The new version.
    pub written: Written,
    /// The position of the block, in bytes.
    pub offset: u64,
    /// Number of blocks.
    pub blocks: u32,
}
