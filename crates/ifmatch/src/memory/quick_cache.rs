//! The memory on WebAssembly: `quick_cache`, which needs no clock.

use std::sync::Arc;

use ifmatch_register::Key;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::memory::entry::{RememberedHead, ResourceEntry};
use crate::read::vary::VaryFields;

/// Typical size of an entry in bytes.
const TYPICAL_SIZE: u64 = 1024;

/// The remembered responses of all resources, by their keys.
#[derive(Debug)]
pub(crate) struct ResponseMemory(Cache<Key, Arc<ResourceEntry>, BySize>);

/// Weighs an entry by its size in bytes.
#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Arc<ResourceEntry>> for BySize {
    fn weight(&self, key: &Key, entry: &Arc<ResourceEntry>) -> u64 {
        entry.weight(key).into()
    }
}

impl ResponseMemory {
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / TYPICAL_SIZE).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, BySize))
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
        self.0.remove(key);
    }
}
