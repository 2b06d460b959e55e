//! The memory on platforms with threads and a clock: moka.

use std::sync::Arc;

use ifmatch_register::Key;
use moka::sync::Cache;

use crate::memory::{Entry, Known, weight};
use crate::read::vary::Vary;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory(Cache<Key, Arc<Entry>>);

impl Memory {
    /// A memory of about so many bytes.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        Self(Cache::builder().max_capacity(bytes).weigher(|key: &Key, entry: &Arc<Entry>| weight(key, entry)).build())
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
        self.0.invalidate(key);
    }
}
