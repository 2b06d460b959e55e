//! Resources that can be leased, and a lease as JSON.

use std::fmt;

use ifmatch_core::lease::{LeaseDuration, LeaseState, SeenLease};
use serde_json::{Map, Value, json};

use crate::name::{BlobName, ContainerName, InvalidName};

/// A blob or container that can be leased.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseTarget {
    /// The container, or the container of the blob.
    pub container: ContainerName,
    /// The blob, or `None` for the container itself.
    pub blob: Option<BlobName>,
}

impl LeaseTarget {
    /// Parses `container` or `container/blob…`, without percent-encoding.
    ///
    /// # Errors
    /// [`InvalidName`] states the rule that a name breaks.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let (container, blob) = match text.split_once('/') {
            Some((container, blob)) => (container, Some(BlobName::new(blob)?)),
            None => (text, None),
        };
        Ok(Self {
            container: ContainerName::new(container)?,
            blob,
        })
    }
}

impl fmt::Display for LeaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.container.fmt(f)?;
        self.blob
            .as_ref()
            .map_or(Ok(()), |blob| write!(f, "/{blob}"))
    }
}

/// Returns a lease or its absence as JSON. Seconds are null for a lease without an end. It omits the lease id, which would
/// allow writing as the holder.
pub fn describe(seen: Option<&SeenLease>) -> Map<String, Value> {
    let lease = seen.map(|seen| &seen.lease);
    let duration = lease.and_then(|lease| match lease.duration() {
        LeaseDuration::Infinite => None,
        LeaseDuration::Seconds(seconds) => Some(seconds),
    });
    let state = seen.map_or(LeaseState::Available, SeenLease::state);
    let fields = [
        ("state", json!(state.name())),
        (
            "infinite",
            json!(lease.is_some_and(|lease| lease.duration() == LeaseDuration::Infinite)),
        ),
        ("duration", json!(duration)),
        (
            "remaining",
            json!(
                seen.filter(|_| state.is_locked())
                    .and_then(|seen| seen.lease.remaining(seen.at))
            ),
        ),
        ("token", json!(lease.map(|lease| lease.token().get()))),
        (
            "holder",
            json!(lease.and_then(|lease| Some(lease.holder()?.to_string()))),
        ),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
