//! The JSON representation of a lease.

use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{self, Lease, LeaseDuration};
use serde_json::{Map, Value, json};

/// Returns a lease or its absence as JSON. Seconds are null for a lease without an end. It omits the lease id, which would
/// allow writing as the holder.
///
/// ```
/// use ifmatch_blob::leases::describe;
/// use ifmatch_core::date::Timestamp;
///
/// assert_eq!(describe(None, Timestamp::default())["state"], "available");
/// ```
pub fn describe(lease: Option<&Lease>, now: Timestamp) -> Map<String, Value> {
    let duration = lease.and_then(|lease| match lease.duration() {
        LeaseDuration::Infinite => None,
        LeaseDuration::Seconds(seconds) => Some(seconds),
    });
    let state = lease::state(lease, now);
    let fields = [
        ("state", json!(state.name())),
        ("infinite", json!(lease.is_some_and(|lease| lease.duration() == LeaseDuration::Infinite))),
        ("duration", json!(duration)),
        ("remaining", json!(lease.filter(|_| state.is_locked()).and_then(|lease| lease.remaining(now)))),
        ("token", json!(lease.map(|lease| lease.token().get()))),
        ("holder", json!(lease.and_then(|lease| Some(lease.holder()?.to_string())))),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}
