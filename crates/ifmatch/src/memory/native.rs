//! The memory on platforms with threads and a clock: moka.

use std::sync::Arc;

use ifmatch_store::Key;
use moka::sync::Cache;

use super::{Entry, Known};
use crate::variant::Vary;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory(Cache<Key, Arc<Entry>>);

impl Memory {
    /// A memory of about so many bytes.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let weigh = |key: &Key, entry: &Arc<Entry>| {
            let size = size_of::<Key>() + key.as_str().len() + entry.size;
            u32::try_from(size).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(bytes).weigher(weigh).build())
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
