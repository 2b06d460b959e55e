//! The counters of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// The cache's counters since the start of the process, and its current size.
///
/// ```
/// let layer = ifmatch_cache::CacheLayer::new();
/// assert_eq!(layer.handle().metrics().hits, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests answered without the origin, including with stale responses.
    pub hits: u64,
    /// Requests without a stored response, which went to the origin or waited for a request that did.
    pub misses: u64,
    /// Requests answered with a stale response.
    pub stale: u64,
    /// Stored responses confirmed by the origin with 304.
    pub revalidated: u64,
    /// Requests answered with the response to a concurrent request.
    pub coalesced: u64,
    /// Requests forwarded without caching.
    pub passed: u64,
    /// Responses stored.
    pub stored: u64,
    /// URIs with stored responses that were invalidated by writes or purged.
    pub invalidated: u64,
    /// Body bytes sent from the cache.
    pub bytes: u64,
    /// URIs evicted because the cache was full.
    pub evictions: u64,
    /// Current size of the stored responses in bytes.
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
