//! The memory on platforms without threads: quick_cache, which needs no clock.

use std::sync::Arc;

use ifmatch_register::Key;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::memory::{Entry, Known, weight};
use crate::read::vary::Vary;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory(Cache<Key, Arc<Entry>, BySize>);

/// What an entry has, more or less.
const USUAL_SIZE: u64 = 1024;

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Arc<Entry>> for BySize {
    fn weight(&self, key: &Key, entry: &Arc<Entry>) -> u64 {
        weight(key, entry).into()
    }
}

impl Memory {
    /// A memory of about so many bytes.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, BySize))
    }

    /// What is remembered of a resource.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.get(key)
    }

    /// Remembers a representation. Of two at the same time one may be lost.
    pub(crate) fn remember(&self, key: &Key, vary: Vary, known: Known) {
        let before = self.0.get(key).unwrap_or_default();
        self.0.insert(key.clone(), Arc::new(before.with(vary, known)));
    }

    /// Forgets a resource.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.remove(key);
    }
}
