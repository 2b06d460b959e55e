//! The tags of records that this process has seen, so that a swap needs no GET before it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use ifmatch_core::record::Revision;
use ifmatch_register::Key;

/// Maximum number of tags. If there are more, all are forgotten.
const CAPACITY: usize = 1_024;

/// The latest known tag of each record. A tag names one content and a revision is used once, so a pair of them that was true
/// stays true: a condition with an old tag fails at the server.
#[derive(Debug, Default)]
pub(crate) struct Tags(Mutex<HashMap<Key, (Revision, HeaderValue)>>);

impl Tags {
    /// Returns the tag of the record with this revision.
    pub(crate) fn of(&self, key: &Key, revision: Revision) -> Option<HeaderValue> {
        self.known()
            .get(key)
            .filter(|(known, _)| *known == revision)
            .map(|(_, tag)| tag.clone())
    }

    /// Takes note of a tag, or forgets the one before if there is none.
    pub(crate) fn saw(&self, key: &Key, current: Option<(Revision, HeaderValue)>) {
        let mut known = self.known();
        if known.len() >= CAPACITY && !known.contains_key(key) {
            known.clear();
        }
        match current {
            Some(current) => drop(known.insert(key.clone(), current)),
            None => drop(known.remove(key)),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, (Revision, HeaderValue)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded() {
        let (tags, tag) = (Tags::default(), HeaderValue::from_static("\"a\""));
        let key = |number: usize| Key::new(number.to_string()).expect("a key");
        for number in 0..3 * CAPACITY {
            tags.saw(&key(number), Some((Revision::new(7), tag.clone())));
            assert!(tags.known().len() <= CAPACITY);
        }
        let last = key(3 * CAPACITY - 1);
        assert_eq!(tags.of(&last, Revision::new(7)), Some(tag));
        assert_eq!(
            tags.of(&last, Revision::new(8)),
            None,
            "another revision has another tag"
        );
        tags.saw(&last, None);
        assert_eq!(tags.of(&last, Revision::new(7)), None);
    }
}
