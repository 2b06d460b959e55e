//! The latest records that this process has seen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::record::Record;

use crate::key::Key;

/// Maximum number of records. If there are more, all are forgotten.
const CAPACITY: usize = 1_024;

/// Records that may have been replaced since. A revision is used once, so a swap that expects an old one fails.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<Key, Record>>);

impl Recent {
    pub(crate) fn get(&self, key: &Key) -> Option<Record> {
        self.records().get(key).cloned()
    }

    /// Takes note of a record, or forgets the one before if there is none.
    pub(crate) fn saw(&self, key: &Key, record: Option<&Record>) {
        let mut records = self.records();
        if records.len() >= CAPACITY && !records.contains_key(key) {
            records.clear();
        }
        match record {
            Some(record) => drop(records.insert(key.clone(), record.clone())),
            None => drop(records.remove(key)),
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_records_is_bounded() {
        let (recent, key) = (Recent::default(), |number: usize| {
            Key::new(number.to_string()).expect("a key")
        });
        for number in 0..3 * CAPACITY {
            recent.saw(&key(number), Some(&Record::absent()));
            assert!(recent.records().len() <= CAPACITY);
        }
        let last = key(3 * CAPACITY - 1);
        assert_eq!(recent.get(&last), Some(Record::absent()));
        recent.saw(&last, None);
        assert_eq!(recent.get(&last), None);
    }
}
