//! A cache of decoded records, bounded in bytes.
//!
//! Only one process may open the database, and only one of its threads writes, so the cache can be exact. It guarantees
//! that no reader gets an older record than an earlier reader did.
//!
//! ```text
//!   reader                      writer
//!   miss: inserts a placeholder
//!   reads the old record
//!                               replaces the placeholder by Writing
//!                               commits
//!                               replaces Writing by the new record
//!   its placeholder is gone:
//!   caches nothing
//! ```
//!
//! - Before the commit, the writer replaces the key's entry by `Writing`. Until the commit ends, it may or may not be
//!   visible, and only the database knows: readers read from the database and cache nothing.
//! - After a miss, a reader inserts a placeholder before it reads from the database, and replaces only that placeholder
//!   by the record. If a commit came in between, the placeholder is gone.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, RegisterError};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, GuardResult};

/// Maximum size, in bytes.
const CAPACITY: u64 = 16 * 1024 * 1024;
/// Typical size of an entry, in bytes.
const USUAL_SIZE: u64 = 512;

/// The cache.
#[derive(Debug)]
pub(crate) struct RecordCache(Cache<Key, Slot, RecordWeighter>);

/// The cache's knowledge of a key.
#[derive(Clone, Debug)]
enum Slot {
    /// A commit of this key is under way.
    Writing,
    Known(Arc<CachedRecord>),
}

/// A record and its encoded size in bytes.
#[derive(Debug)]
pub(crate) struct CachedRecord {
    pub(crate) record: Record,
    pub(crate) size: usize,
}

/// Weighs entries by their bytes.
#[derive(Clone, Debug)]
struct RecordWeighter;

impl Weighter<Key, Slot> for RecordWeighter {
    /// Entries without weight are never evicted, so a commit in progress isn't forgotten.
    fn weight(&self, key: &Key, slot: &Slot) -> u64 {
        match slot {
            Slot::Writing => 0,
            Slot::Known(stored) => {
                (size_of::<CachedRecord>() + key.as_str().len() + stored.size) as u64
            }
        }
    }
}

impl RecordCache {
    pub(crate) fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    fn with_capacity(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, RecordWeighter))
    }

    /// Returns the record of a key from the cache, or from the database with `read`.
    pub(crate) fn load(
        &self,
        key: &Key,
        read: impl FnOnce() -> Result<Option<CachedRecord>, RegisterError>,
    ) -> Result<Option<Record>, RegisterError> {
        // Does not wait for another reader's placeholder.
        match self.0.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(Slot::Known(stored)) => Ok(Some(stored.record.clone())),
            GuardResult::Value(Slot::Writing) | GuardResult::Timeout => {
                Ok(read()?.map(|stored| stored.record))
            }
            GuardResult::Guard(placeholder) => {
                let Some(stored) = read()? else {
                    return Ok(None);
                };
                let record = stored.record.clone();
                // Fails if the placeholder is gone.
                drop(placeholder.insert(Slot::Known(Arc::new(stored))));
                Ok(Some(record))
            }
        }
    }

    /// Returns the revision of a key's record if it is cached.
    pub(crate) fn revision(&self, key: &Key) -> Option<Revision> {
        match self.0.get(key)? {
            Slot::Known(stored) => Some(stored.record.revision()),
            Slot::Writing => None,
        }
    }

    /// Records that a commit of this key begins.
    pub(crate) fn begin(&self, key: &Key) {
        self.0.insert(key.clone(), Slot::Writing);
    }

    /// Records that a commit of this key has ended. `left` is the record that it left, or `None` if there is none or it is
    /// unknown.
    pub(crate) fn end(&self, key: &Key, left: Option<CachedRecord>) {
        match left {
            Some(stored) => self.0.insert(key.clone(), Slot::Known(Arc::new(stored))),
            None => drop(self.0.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).expect("valid")
    }

    fn stored(revision: u64) -> CachedRecord {
        CachedRecord {
            record: Record::forgotten(Revision::new(revision)),
            size: 64,
        }
    }

    /// Returns the revision that a reader gets while the database holds the given one.
    fn seen(cache: &RecordCache, key: &Key, in_the_database: u64) -> u64 {
        let record = cache
            .load(key, || Ok(Some(stored(in_the_database))))
            .expect("it can be read");
        record.expect("it exists").revision().get()
    }

    /// Runs `meanwhile` after a reader has read the old revision 1 from the database.
    fn overtaken(cache: &RecordCache, key: &Key, meanwhile: impl FnOnce()) {
        let read = || {
            meanwhile();
            Ok(Some(stored(1)))
        };
        assert!(cache.load(key, read).is_ok());
    }

    #[test]
    fn a_record_is_read_once() {
        let (cache, key) = (RecordCache::new(), key("a"));
        assert_eq!((seen(&cache, &key, 1), seen(&cache, &key, 9)), (1, 1));
        assert_eq!(cache.revision(&key), Some(Revision::new(1)));
    }

    #[test]
    fn a_reader_overtaken_by_a_whole_commit_caches_nothing() {
        let (cache, key) = (RecordCache::new(), key("a"));
        overtaken(&cache, &key, || {
            cache.begin(&key);
            cache.end(&key, Some(stored(2)));
        });
        assert_eq!(seen(&cache, &key, 9), 2);
    }

    #[test]
    fn a_reader_overtaken_by_the_start_of_a_commit_caches_nothing() {
        let (cache, key) = (RecordCache::new(), key("a"));
        overtaken(&cache, &key, || cache.begin(&key));
        assert_eq!(cache.revision(&key), None);
        assert_eq!(seen(&cache, &key, 2), 2);
    }

    #[test]
    fn a_reader_overtaken_by_the_end_of_a_commit_caches_nothing() {
        let (cache, key) = (RecordCache::new(), key("a"));
        cache.begin(&key);
        overtaken(&cache, &key, || cache.end(&key, Some(stored(2))));
        assert_eq!(seen(&cache, &key, 9), 2);
    }

    #[test]
    fn a_reader_overtaken_by_a_failed_commit_caches_nothing() {
        let (cache, key) = (RecordCache::new(), key("a"));
        overtaken(&cache, &key, || {
            cache.begin(&key);
            cache.end(&key, None);
        });
        assert_eq!(seen(&cache, &key, 2), 2);
    }

    #[test]
    fn during_a_commit_readers_use_the_database() {
        let (cache, key) = (RecordCache::new(), key("a"));
        assert_eq!(seen(&cache, &key, 1), 1);
        cache.begin(&key);
        assert_eq!(
            (
                cache.revision(&key),
                seen(&cache, &key, 1),
                seen(&cache, &key, 2)
            ),
            (None, 1, 2)
        );
        cache.end(&key, Some(stored(2)));
        assert_eq!(seen(&cache, &key, 9), 2);
    }

    #[test]
    fn one_reader_does_not_wait_for_another() {
        let (cache, key) = (RecordCache::new(), key("a"));
        overtaken(&cache, &key, || assert_eq!(seen(&cache, &key, 1), 1));
    }

    #[test]
    fn a_commit_in_progress_is_never_evicted() {
        let cache = RecordCache::with_capacity(64 * 1024);
        let key_in_flight = key("in flight");
        cache.begin(&key_in_flight);
        for at in 0..10_000 {
            seen(&cache, &key(&at.to_string()), 1);
        }
        assert!(cache.0.weight() <= 64 * 1024);
        assert_eq!(seen(&cache, &key_in_flight, 1), 1);
        assert_eq!(seen(&cache, &key_in_flight, 2), 2);
    }

    #[test]
    fn a_record_that_is_too_large_is_not_cached() {
        let (cache, key) = (RecordCache::with_capacity(64 * 1024), key("a"));
        assert_eq!(seen(&cache, &key, 1), 1);
        cache.begin(&key);
        cache.end(
            &key,
            Some(CachedRecord {
                size: 1024 * 1024,
                ..stored(2)
            }),
        );
        assert_eq!((cache.revision(&key), seen(&cache, &key, 3)), (None, 3));
    }
}
