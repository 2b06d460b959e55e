//! What is told of a lease, as JSON. Its id is not: whoever knows it can write as its holder.

use ifmatch_blob::name::BlobName;
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::{self, Lease, LeaseDuration};
use serde_json::{Value, json};

use super::list::Place;

/// A lease, or that there is none. Seconds are null where there is no end.
pub(crate) fn of(place: &Place, lease: Option<&Lease>, now: Timestamp) -> Value {
    let duration = lease.and_then(|lease| match lease.duration() {
        LeaseDuration::Infinite => None,
        LeaseDuration::Seconds(seconds) => Some(seconds),
    });
    let state = lease::state(lease, now);
    json!({
        "path": place.to_string(),
        "container": place.container.as_str(),
        "blob": place.blob.as_ref().map(BlobName::as_str),
        "state": state.name(),
        "infinite": lease.is_some_and(|lease| lease.duration() == LeaseDuration::Infinite),
        "duration": duration,
        "remaining": lease.filter(|_| state.is_locked()).and_then(|lease| lease.remaining(now)),
        "token": lease.map(|lease| lease.token().get()),
    })
}
