//! Records that were read or written a while ago, decoded, in memory. Bounded by bytes.
//!
//! Only one process may open the database, and only one thread of it writes, so that this memory can be kept exact. What
//! must never happen: a reader sees a record, and another reader after it an older one.
//!
//! ```text
//!   reader                      writer
//!   nothing here: a mark
//!   reads the old record
//!                               Writing over the mark
//!                               commits
//!                               the new record in its place
//!   its mark is gone:
//!   keeps nothing
//! ```
//!
//! - Before the commit, the writer puts `Writing` in the place of whatever is known of the key. From there to its end the
//!   commit may be visible or not, and only the database can tell: readers look there, and keep nothing.
//! - A reader that found nothing leaves a mark before it looks into the database, and what it read takes the place of
//!   that very mark only. If a commit came in between, the mark is gone.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, RegisterError};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, GuardResult};

/// The most that is kept, in bytes.
const CAPACITY: u64 = 16 * 1024 * 1024;
/// What an entry has, more or less.
const USUAL_SIZE: u64 = 512;

/// Records in memory.
#[derive(Debug)]
pub(crate) struct Recent(Cache<Key, Slot, BySize>);

#[derive(Clone, Debug)]
enum Slot {
    /// A commit of this key is under way.
    Writing,
    Known(Arc<Stored>),
}

/// A record, and how many bytes it has when it is encoded.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) record: Record,
    pub(crate) size: usize,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Slot> for BySize {
    /// Nothing without weight is ever evicted: a commit under way must not be forgotten.
    fn weight(&self, key: &Key, slot: &Slot) -> u64 {
        match slot {
            Slot::Writing => 0,
            Slot::Known(stored) => (size_of::<Stored>() + key.as_str().len() + stored.size) as u64,
        }
    }
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    fn with_capacity(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, BySize))
    }

    /// The record of a key from here, or from the database by `read`.
    pub(crate) fn load(
        &self,
        key: &Key,
        read: impl FnOnce() -> Result<Option<Stored>, RegisterError>,
    ) -> Result<Option<Record>, RegisterError> {
        // Another reader's mark is not waited for.
        match self.0.get_value_or_guard(key, Some(Duration::ZERO)) {
            GuardResult::Value(Slot::Known(stored)) => Ok(Some(stored.record.clone())),
            GuardResult::Value(Slot::Writing) | GuardResult::Timeout => Ok(read()?.map(|stored| stored.record)),
            GuardResult::Guard(mark) => {
                let Some(stored) = read()? else { return Ok(None) };
                let record = stored.record.clone();
                // Refused if the mark is gone.
                drop(mark.insert(Slot::Known(Arc::new(stored))));
                Ok(Some(record))
            }
        }
    }

    /// The revision of a key's record, if it is here.
    pub(crate) fn revision(&self, key: &Key) -> Option<Revision> {
        match self.0.get(key)? {
            Slot::Known(stored) => Some(stored.record.revision()),
            Slot::Writing => None,
        }
    }

    /// Notes that a commit of this key begins.
    pub(crate) fn begin(&self, key: &Key) {
        self.0.insert(key.clone(), Slot::Writing);
    }

    /// Notes that a commit of this key has ended, and left this record, or nothing, or nobody knows what.
    pub(crate) fn end(&self, key: &Key, left: Option<Stored>) {
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

    fn stored(revision: u64) -> Stored {
        Stored { record: Record::forgotten(Revision::new(revision)), size: 64 }
    }

    /// What a reader sees while the database holds this revision.
    fn seen(recent: &Recent, key: &Key, in_the_database: u64) -> u64 {
        let record = recent.load(key, || Ok(Some(stored(in_the_database)))).expect("it can be read");
        record.expect("it is there").revision().get()
    }

    /// What a reader sees that has read the old revision 1 when all this happens.
    fn overtaken(recent: &Recent, key: &Key, meanwhile: impl FnOnce()) {
        let read = || {
            meanwhile();
            Ok(Some(stored(1)))
        };
        assert!(recent.load(key, read).is_ok());
    }

    #[test]
    fn what_was_read_once_is_not_read_again() {
        let (recent, key) = (Recent::new(), key("a"));
        assert_eq!((seen(&recent, &key, 1), seen(&recent, &key, 9)), (1, 1));
        assert_eq!(recent.revision(&key), Some(Revision::new(1)));
    }

    #[test]
    fn a_reader_that_a_whole_commit_overtook_keeps_nothing() {
        let (recent, key) = (Recent::new(), key("a"));
        overtaken(&recent, &key, || {
            recent.begin(&key);
            recent.end(&key, Some(stored(2)));
        });
        assert_eq!(seen(&recent, &key, 9), 2);
    }

    #[test]
    fn a_reader_that_the_begin_of_a_commit_overtook_keeps_nothing() {
        let (recent, key) = (Recent::new(), key("a"));
        overtaken(&recent, &key, || recent.begin(&key));
        assert_eq!(recent.revision(&key), None);
        assert_eq!(seen(&recent, &key, 2), 2);
    }

    #[test]
    fn a_reader_that_the_end_of_a_commit_overtook_keeps_nothing() {
        let (recent, key) = (Recent::new(), key("a"));
        recent.begin(&key);
        overtaken(&recent, &key, || recent.end(&key, Some(stored(2))));
        assert_eq!(seen(&recent, &key, 9), 2);
    }

    #[test]
    fn a_reader_that_a_failed_commit_overtook_keeps_nothing() {
        let (recent, key) = (Recent::new(), key("a"));
        overtaken(&recent, &key, || {
            recent.begin(&key);
            recent.end(&key, None);
        });
        assert_eq!(seen(&recent, &key, 2), 2);
    }

    #[test]
    fn during_a_commit_only_the_database_can_tell() {
        let (recent, key) = (Recent::new(), key("a"));
        assert_eq!(seen(&recent, &key, 1), 1);
        recent.begin(&key);
        assert_eq!((recent.revision(&key), seen(&recent, &key, 1), seen(&recent, &key, 2)), (None, 1, 2));
        recent.end(&key, Some(stored(2)));
        assert_eq!(seen(&recent, &key, 9), 2);
    }

    #[test]
    fn one_reader_does_not_wait_for_another() {
        let (recent, key) = (Recent::new(), key("a"));
        overtaken(&recent, &key, || assert_eq!(seen(&recent, &key, 1), 1));
    }

    #[test]
    fn a_commit_under_way_is_not_evicted_and_the_rest_is() {
        let recent = Recent::with_capacity(64 * 1024);
        let key_in_flight = key("in flight");
        recent.begin(&key_in_flight);
        for at in 0..10_000 {
            seen(&recent, &key(&at.to_string()), 1);
        }
        assert!(recent.0.weight() <= 64 * 1024);
        assert_eq!(seen(&recent, &key_in_flight, 1), 1);
        assert_eq!(seen(&recent, &key_in_flight, 2), 2);
    }

    #[test]
    fn a_record_that_is_too_large_takes_the_place_of_none() {
        let (recent, key) = (Recent::with_capacity(64 * 1024), key("a"));
        assert_eq!(seen(&recent, &key, 1), 1);
        recent.begin(&key);
        recent.end(&key, Some(Stored { size: 1024 * 1024, ..stored(2) }));
        assert_eq!((recent.revision(&key), seen(&recent, &key, 3)), (None, 3));
    }
}
