//! Tracks when this process first saw deadlines written by a clock ahead of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Overlong, Record};

use crate::key::Key;

/// Maximum number of deadlines tracked. Beyond it, the oldest entry is dropped and tracked anew.
const MAX_TRACKED: usize = 1_024;

/// Deadlines, each with the time it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(Mutex<HashMap<(Key, Overlong), Timestamp>>);

impl Deadlines {
    /// Returns the record without the deadlines that this process has seen unchanged, by its own clock, for as long as they
    /// were granted.
    pub(crate) fn view(&self, key: &Key, mut record: Record, now: Timestamp, own: Timestamp) -> Record {
        let overlong: Vec<_> = record.overlong(now).collect();
        for (overlong, given) in overlong {
            if self.first_seen(key, overlong, own).saturating_add(given) <= own {
                record = record.without_overlong(overlong, now);
            }
        }
        record
    }

    fn first_seen(&self, key: &Key, overlong: Overlong, own: Timestamp) -> Timestamp {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_TRACKED && !seen.contains_key(&(key.clone(), overlong)) {
            let oldest = seen.iter().min_by_key(|(_, time)| **time).map(|(deadline, _)| deadline.clone());
            oldest.map(|oldest| seen.remove(&oldest));
        }
        *seen.entry((key.clone(), overlong)).or_insert(own)
    }
}
