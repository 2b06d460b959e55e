//! The memory on platforms with threads and a clock: moka.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::notification::RemovalCause;
use moka::sync::Cache;

use super::Entry;
use crate::key::Key;

/// What moka, the allocator and other bookkeeping take for each entry, as measured with many small ones.
const PER_ENTRY: u64 = 1_024;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory {
    entries: Cache<Key, Arc<Entry>>,
    /// The bytes that came since moka last looked at its limit.
    unchecked: AtomicU64,
    /// How many of them may come before it must look again.
    slack: u64,
    evictions: Arc<AtomicU64>,
}

impl Memory {
    /// A memory of so many bytes; it may exceed them by a 64th for a moment.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let evictions = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&evictions);
        let entries = Cache::builder()
            .max_capacity(bytes)
            .weigher(|key: &Key, entry: &Arc<Entry>| u32::try_from(weight(key, entry)).unwrap_or(u32::MAX))
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build();
        Self { entries, unchecked: AtomicU64::new(0), slack: bytes / 64, evictions }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    pub(crate) fn insert(&self, key: &Key, entry: Arc<Entry>) {
        let weight = weight(key, &entry);
        self.entries.insert(key.clone(), entry);
        if self.unchecked.fetch_add(weight, Ordering::Relaxed) >= self.slack {
            self.unchecked.store(0, Ordering::Relaxed);
            self.entries.run_pending_tasks();
        }
    }

    /// Tells whether responses were stored.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.entries.remove(key).is_some_and(|entry| !entry.variants.is_empty())
    }

    /// The keys that begin so.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<Key> {
        let keys = self.entries.iter().map(|(key, _)| Key::clone(&key));
        keys.filter(|key| key.as_str().starts_with(prefix)).collect()
    }

    /// The bytes that are stored.
    pub(crate) fn weight(&self) -> u64 {
        self.entries.run_pending_tasks();
        self.entries.weighted_size()
    }

    /// How many entries went because the memory was full.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

fn weight(key: &Key, entry: &Entry) -> u64 {
    PER_ENTRY + key.as_str().len() as u64 + entry.size()
}
