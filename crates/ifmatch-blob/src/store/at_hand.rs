//! What a store can tell of a blob without waiting.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderMap;

use super::BlobInfo;

/// The current version of a blob, as far as it is at hand.
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_blob::store::{AtHand, BlobInfo, Known};
///
/// fn at_hand(info: BlobInfo) -> AtHand {
///     AtHand { known: Arc::new(Known::new(info)), content: None }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AtHand {
    /// What is known of it. A store keeps this as long as the version is the current one.
    pub known: Arc<Known>,
    /// All bytes, where they are in memory.
    pub content: Option<Bytes>,
}

/// What is known of one version of a blob, and what was made of that before.
#[derive(Debug)]
pub struct Known {
    info: BlobInfo,
    pub(crate) whole: OnceLock<HeaderMap>,
    pub(crate) not_modified: OnceLock<HeaderMap>,
}

impl Known {
    /// What is known of a version that nobody has asked for yet.
    pub fn new(info: BlobInfo) -> Self {
        Self { info, whole: OnceLock::new(), not_modified: OnceLock::new() }
    }

    /// What is known.
    pub fn info(&self) -> &BlobInfo {
        &self.info
    }
}
