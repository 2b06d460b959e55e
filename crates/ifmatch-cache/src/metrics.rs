//! What the cache counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// The cache's counters at one moment. They count from the start of the process; `stored_bytes` is a level.
///
/// ```
/// let layer = ifmatch_cache::CacheLayer::new();
/// assert_eq!(layer.handle().metrics().hits, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests answered without asking the origin, stale answers included.
    pub hits: u64,
    /// Requests that asked the origin, or waited for another one that did, with nothing to validate.
    pub misses: u64,
    /// Requests answered by a stale response.
    pub stale: u64,
    /// Stored responses that the origin confirmed by 304.
    pub revalidated: u64,
    /// Requests answered by the response to another one that they waited for.
    pub coalesced: u64,
    /// Requests that were passed on because the cache does not handle their kind.
    pub passed: u64,
    /// Responses stored.
    pub stored: u64,
    /// URIs whose stored responses were invalidated by writes, or purged.
    pub invalidated: u64,
    /// Bytes of bodies answered from the cache.
    pub bytes: u64,
    /// URIs whose responses went because the cache was full.
    pub evictions: u64,
    /// Bytes that stored responses take now.
    pub stored_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) stale: Counter,
    pub(crate) revalidated: Counter,
    pub(crate) coalesced: Counter,
    pub(crate) passed: Counter,
    pub(crate) stored: Counter,
    pub(crate) invalidated: Counter,
    pub(crate) bytes: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
