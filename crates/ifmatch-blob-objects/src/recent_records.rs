//! The records of the blobs that this process wrote last, so its next write needn't load them.
//!
//! Such a record may be outdated, and a swap that starts from it then fails and begins again with the current one. So it never refuses
//! a write: only records without a lease and without a permit are kept, and a check that fails is repeated with the current record.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Record;
use ifmatch_register::Key;

/// Maximum number of records. A record takes about 1 KiB.
const CAPACITY: usize = 1_000;

/// The records of recent writes.
pub(super) struct RecentRecords {
    is_enabled: bool,
    records: Mutex<HashMap<Key, Record>>,
}

impl RecentRecords {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            records: Mutex::default(),
        }
    }

    /// Returns the record after this process's latest write of a blob. It may be outdated.
    pub(super) fn get(&self, key: &Key) -> Option<Record> {
        self.records().get(key).cloned()
    }

    /// Keeps the record after a write.
    pub(super) fn keep(&self, key: &Key, record: Record, now: Timestamp) {
        if !self.is_enabled {
            return;
        }
        let mut records = self.records();
        if record.permit(now).is_some() || record.lease_state(now).is_locked() {
            records.remove(key);
            return;
        }
        if records.len() >= CAPACITY && !records.contains_key(key) {
            records.clear();
        }
        records.insert(key.clone(), record);
    }

    /// Forgets a record: another request has changed it.
    pub(super) fn forget(&self, key: &Key) {
        self.records().remove(key);
    }

    fn records(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
