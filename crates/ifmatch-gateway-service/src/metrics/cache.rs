//! Metrics of the cache, and of the purge log that several proxies share.

use std::time::Duration;

use ifmatch_cache::{Invalidation, Metrics, NotStored, Outcome};
use metrics::{counter, gauge};

use super::table::cache::{
    ANSWERED_BYTES, CONFIRMED, DISK_BYTES, EVICTIONS, INVALIDATED, NOT_STORED, REQUESTS, STORED,
    STORED_BYTES,
};
use super::table::purges;

/// Copies the current counters of the cache.
pub(crate) fn update(now: &Metrics) {
    for outcome in Outcome::ALL {
        counter!(REQUESTS, "outcome" => outcome.name(), "reason" => outcome.reason())
            .absolute(now.count(outcome));
    }
    for reason in NotStored::ALL {
        counter!(NOT_STORED, "reason" => reason.reason()).absolute(now.not_stored(reason));
    }
    for cause in Invalidation::ALL {
        counter!(INVALIDATED, "cause" => cause.cause()).absolute(now.invalidated(cause));
    }
    for (name, count) in [
        (CONFIRMED, now.confirmed),
        (STORED, now.stored),
        (EVICTIONS, now.evictions),
        (ANSWERED_BYTES, now.bytes),
    ] {
        counter!(name).absolute(count);
    }
    for (name, bytes) in [
        (STORED_BYTES, now.stored_bytes),
        (DISK_BYTES, now.disk_bytes),
    ] {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a level, of which fifteen digits are enough"
        )]
        gauge!(name).set(bytes as f64);
    }
}

/// Sets the progress through the purge log.
pub(crate) fn update_purges(position: u64, age: Duration, is_cut_off: bool) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a number to compare with those of other proxies, exact up to 2^53"
    )]
    gauge!(purges::POSITION).set(position as f64);
    gauge!(purges::AGE).set(age.as_secs_f64());
    gauge!(purges::CUT_OFF).set(f64::from(u8::from(is_cut_off)));
}
