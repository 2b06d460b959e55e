//! The JSON representation of a lease. It omits the lease id, which would allow writing as the holder.

use ifmatch_blob::name::BlobName;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{self, Lease, LeaseDuration};
use serde_json::{Value, json};

use super::listing::LeaseTarget;

/// Returns a lease or its absence as JSON. Seconds are null for a lease without an end.
pub(crate) fn lease_json(target: &LeaseTarget, lease: Option<&Lease>, now: Timestamp) -> Value {
    let duration = lease.and_then(|lease| match lease.duration() {
        LeaseDuration::Infinite => None,
        LeaseDuration::Seconds(seconds) => Some(seconds),
    });
    let state = lease::state(lease, now);
    json!({
        "path": target.to_string(),
        "container": target.container.as_str(),
        "blob": target.blob.as_ref().map(BlobName::as_str),
        "state": state.name(),
        "infinite": lease.is_some_and(|lease| lease.duration() == LeaseDuration::Infinite),
        "duration": duration,
        "remaining": lease.filter(|_| state.is_locked()).and_then(|lease| lease.remaining(now)),
        "token": lease.map(|lease| lease.token().get()),
    })
}
