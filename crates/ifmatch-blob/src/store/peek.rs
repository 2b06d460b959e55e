//! Answers that a store gives without waiting.

use std::sync::Arc;

use bytes::Bytes;

use super::read::BlobInfo;
use crate::name::{BlobPath, ContainerName};

/// Answers that a store can give without waiting: see [`BlobStore::peek`](super::BlobStore::peek).
///
/// An answer has the same guarantees as the asynchronous call that it saves.
pub trait Peek: Send + Sync {
    /// Returns the current version of a blob, or `None` if only [`open`](super::BlobStore::open) can tell.
    fn cached(&self, blob: &BlobPath) -> Option<Cached>;

    /// Returns `true` if an [internal](ContainerName::internal) container is empty, or `false` if only
    /// [`list`](super::BlobStore::list) can tell.
    fn is_empty(&self, container: &ContainerName) -> bool;
}

/// The current version of a blob, from memory.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Its properties. The lease may be missing.
    pub info: Arc<BlobInfo>,
    /// All bytes, if they are in memory.
    pub content: Option<Bytes>,
}
