//! Metrics of the cache.

use ifmatch_cache::{Invalidation, Metrics, NotStored, Outcome};
use metrics::{counter, describe_counter, describe_gauge, gauge};

const REQUESTS: &str = "ifmatch_cache_requests_total";
const CONFIRMED: &str = "ifmatch_cache_confirmed_total";
const STORED: &str = "ifmatch_cache_stored_total";
const NOT_STORED: &str = "ifmatch_cache_not_stored_total";
const INVALIDATED: &str = "ifmatch_cache_invalidated_total";
const EVICTIONS: &str = "ifmatch_cache_evictions_total";
const ANSWERED_BYTES: &str = "ifmatch_cache_answered_bytes_total";
const STORED_BYTES: &str = "ifmatch_cache_stored_bytes";
const DISK_BYTES: &str = "ifmatch_cache_disk_bytes";

/// Registers the descriptions.
pub(crate) fn describe() {
    describe_counter!(REQUESTS, "Requests by outcome and its reason. Each request has exactly one outcome.");
    describe_counter!(CONFIRMED, "Stored responses confirmed by a 304 of the upstream, also in the background.");
    describe_counter!(STORED, "Responses stored completely.");
    describe_counter!(NOT_STORED, "Responses that were to be stored, but were not, by reason.");
    describe_counter!(INVALIDATED, "URIs with stored responses that were invalidated by writes, or purged, by cause.");
    describe_counter!(EVICTIONS, "URIs evicted because the cache was full.");
    describe_counter!(ANSWERED_BYTES, "Bytes of bodies served from the cache.");
    describe_gauge!(STORED_BYTES, "Current size of stored responses in memory, in bytes.");
    describe_gauge!(DISK_BYTES, "Current size of bodies in --cache-dir, in bytes.");
}

/// Copies the current counters of the cache.
pub(crate) fn update(now: &Metrics) {
    for outcome in Outcome::ALL {
        counter!(REQUESTS, "outcome" => outcome.name(), "reason" => outcome.reason()).absolute(now.count(outcome));
    }
    for reason in NotStored::ALL {
        counter!(NOT_STORED, "reason" => reason.reason()).absolute(now.not_stored(reason));
    }
    for cause in Invalidation::ALL {
        counter!(INVALIDATED, "cause" => cause.cause()).absolute(now.invalidated(cause));
    }
    for (name, count) in
        [(CONFIRMED, now.confirmed), (STORED, now.stored), (EVICTIONS, now.evictions), (ANSWERED_BYTES, now.bytes)]
    {
        counter!(name).absolute(count);
    }
    for (name, bytes) in [(STORED_BYTES, now.stored_bytes), (DISK_BYTES, now.disk_bytes)] {
        #[expect(clippy::cast_precision_loss, reason = "a level, of which fifteen digits are enough")]
        gauge!(name).set(bytes as f64);
    }
}
