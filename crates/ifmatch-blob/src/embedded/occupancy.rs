//! How many blobs there may be in the containers that this crate keeps for itself, so that most writes need not look for
//! staged blocks where there are none at all.
//!
//! A number here may be too large, but never too small: a write counts from before it begins, and until it is known to have
//! left nothing behind.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::command::Outcome;
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_store::Key;
use ifmatch_store::driver::Applied;

use super::key;
use crate::name::ContainerName;

/// The numbers, by the containers' names.
#[derive(Debug, Default)]
pub(super) struct Occupancy(Mutex<HashMap<Box<str>, u64>>);

/// A write under way, which counts as a blob more.
pub(super) struct Counted<'a> {
    occupancy: &'a Occupancy,
    container: &'a str,
}

impl Occupancy {
    /// Whether there is nothing in a container of this crate's own.
    pub(super) fn is_empty(&self, container: &ContainerName) -> bool {
        container.is_internal() && self.lock().get(container.as_str()).is_none_or(|blobs| *blobs == 0)
    }

    /// Counts a record that was there before the first write.
    pub(super) fn found(&self, key: &Key, record: &Record, now: Timestamp) {
        if let Some(container) = key::internal_container_of(key).filter(|_| is_present(record, now) == 1) {
            self.change(container, |blobs| blobs.saturating_add(1));
        }
    }

    /// Counts a write that is about to begin. None: it is not to such a container.
    pub(super) fn begin<'a>(&'a self, key: &'a Key) -> Option<Counted<'a>> {
        let container = key::internal_container_of(key)?;
        self.change(container, |blobs| blobs.saturating_add(1));
        Some(Counted { occupancy: self, container })
    }

    fn change(&self, container: &str, change: impl FnOnce(u64) -> u64) {
        let mut numbers = self.lock();
        match numbers.get_mut(container) {
            Some(blobs) => *blobs = change(*blobs),
            None => drop(numbers.insert(container.into(), change(0))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted<'_> {
    /// Counts what the write has left. Without this, for nobody knows the outcome, it counts for ever.
    pub(super) fn end(self, applied: &Applied, now: Timestamp) {
        let (before, after) = match applied.outcome {
            Outcome::Written(_) => (is_present(&applied.before, now), is_present(&applied.after, now)),
            _ => (0, 0),
        };
        self.occupancy.change(self.container, |blobs| (blobs + after).saturating_sub(1 + before));
    }
}

fn is_present(record: &Record, now: Timestamp) -> u64 {
    u64::from(record.state(now).version().is_some())
}
