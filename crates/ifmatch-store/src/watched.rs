//! When this process first saw deadlines that a clock ahead of its own wrote.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Overlong, Record};

use crate::key::Key;

/// How many deadlines are watched at most. Of more, the ones that were seen first are watched anew.
const MOST: usize = 1_024;

/// The deadlines, and when each was first seen.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<HashMap<(Key, Overlong), Timestamp>>);

impl Watched {
    /// Returns the record as it is for this process: without the deadlines that it has seen unchanged for the whole time
    /// that was given.
    pub(crate) fn view(&self, key: &Key, mut record: Record, now: Timestamp) -> Record {
        let overlong: Vec<_> = record.overlong(now).collect();
        for (overlong, given) in overlong {
            if self.first_seen(key, overlong, now).saturating_add(given) <= now {
                record = record.without_overlong(overlong, now);
            }
        }
        record
    }

    fn first_seen(&self, key: &Key, overlong: Overlong, now: Timestamp) -> Timestamp {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= MOST && !watched.contains_key(&(key.clone(), overlong)) {
            let oldest = watched.iter().min_by_key(|(_, seen)| **seen).map(|(watched, _)| watched.clone());
            oldest.map(|oldest| watched.remove(&oldest));
        }
        *watched.entry((key.clone(), overlong)).or_insert(now)
    }
}
