//! Metrics of the cache.

use ifmatch_cache::Metrics;
use metrics::{counter, describe_counter, describe_gauge, gauge};

const REQUESTS: &str = "ifmatch_cache_requests_total";
const STALE: &str = "ifmatch_cache_stale_total";
const COALESCED: &str = "ifmatch_cache_coalesced_total";
const REVALIDATED: &str = "ifmatch_cache_revalidated_total";
const STORED: &str = "ifmatch_cache_stored_total";
const INVALIDATED: &str = "ifmatch_cache_invalidated_total";
const EVICTIONS: &str = "ifmatch_cache_evictions_total";
const ANSWERED_BYTES: &str = "ifmatch_cache_answered_bytes_total";
const STORED_BYTES: &str = "ifmatch_cache_stored_bytes";

/// Registers the descriptions.
pub(crate) fn describe() {
    describe_counter!(
        REQUESTS,
        "Requests served from the cache (hit) or by the upstream (miss), or not cacheable (passed)."
    );
    describe_counter!(STALE, "Requests served with a stale response.");
    describe_counter!(COALESCED, "Requests that shared the upstream response of a concurrent request.");
    describe_counter!(REVALIDATED, "Stored responses revalidated by a 304 of the upstream.");
    describe_counter!(STORED, "Responses stored.");
    describe_counter!(INVALIDATED, "URIs invalidated by writes, or purged.");
    describe_counter!(EVICTIONS, "URIs evicted because the cache was full.");
    describe_counter!(ANSWERED_BYTES, "Bytes of bodies served from the cache.");
    describe_gauge!(STORED_BYTES, "Current size of stored responses, in bytes.");
}

/// Copies the current counters of the cache.
pub(crate) fn update(now: &Metrics) {
    for (outcome, count) in [("hit", now.hits), ("miss", now.misses), ("passed", now.passed)] {
        counter!(REQUESTS, "outcome" => outcome).absolute(count);
    }
    for (name, count) in [
        (STALE, now.stale),
        (COALESCED, now.coalesced),
        (REVALIDATED, now.revalidated),
        (STORED, now.stored),
        (INVALIDATED, now.invalidated),
        (EVICTIONS, now.evictions),
        (ANSWERED_BYTES, now.bytes),
    ] {
        counter!(name).absolute(count);
    }
    #[expect(clippy::cast_precision_loss, reason = "a level, of which fifteen digits are enough")]
    gauge!(STORED_BYTES).set(now.stored_bytes as f64);
}
