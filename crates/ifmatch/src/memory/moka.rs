//! The memory on native targets: moka.

use std::sync::Arc;

use ifmatch_register::Key;
use moka::sync::Cache;

use crate::memory::entry::{RememberedHead, ResourceEntry};
use crate::read::vary::VaryFields;

/// The remembered responses of all resources, by their keys.
#[derive(Debug)]
pub(crate) struct ResponseMemory(Cache<Key, Arc<ResourceEntry>>);

impl ResponseMemory {
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        Self(
            Cache::builder()
                .max_capacity(bytes)
                .weigher(|key, entry: &Arc<ResourceEntry>| entry.weight(key))
                .build(),
        )
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<ResourceEntry>> {
        self.0.get(key)
    }

    /// Remembers a response. One of two concurrent calls may be lost.
    pub(crate) fn remember(&self, key: &Key, vary: VaryFields, response: RememberedHead) {
        let before = self.get(key).unwrap_or_default();
        self.0
            .insert(key.clone(), Arc::new(before.with(vary, response)));
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.invalidate(key);
    }
}
