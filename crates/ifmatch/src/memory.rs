//! What is remembered of responses, so that a 304 needs no run of the inner service. Bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Revision, Variant};
use ifmatch_store::Key;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::variant::Vary;

/// What an entry has, more or less, in bytes.
const USUAL_SIZE: u64 = 1024;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory(Cache<Key, Arc<Entry>, BySize>);

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<Key, Arc<Entry>> for BySize {
    fn weight(&self, key: &Key, entry: &Arc<Entry>) -> u64 {
        (size_of::<Key>() + key.as_str().len() + entry.size) as u64
    }
}

impl Memory {
    /// A memory of about so many bytes.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, BySize))
    }

    /// What is remembered of a resource.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.get(key)
    }

    /// Remembers a representation. Of two at the same time one may be lost.
    pub(crate) fn remember(&self, key: &Key, vary: Vary, known: Known) {
        let before = self.get(key).unwrap_or_default();
        self.0.insert(key.clone(), Arc::new(before.with(vary, known)));
    }

    /// Forgets a resource.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.remove(key);
    }
}

/// The representations of one resource.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    vary: Vary,
    known: Vec<Arc<Known>>,
    /// In bytes.
    size: usize,
}

/// One representation.
#[derive(Debug)]
pub(crate) struct Known {
    /// What selects it.
    pub(crate) variant: Variant,
    /// The version that it represents.
    pub(crate) generation: Revision,
    /// Its tag, as the record has it.
    pub(crate) tag: EntityTag,
    /// Its version's modification date.
    pub(crate) last_modified: HttpDate,
    /// The same as a header field has it.
    pub(crate) date: HeaderValue,
    /// The header fields of a 304.
    pub(crate) headers: HeaderMap,
    /// When its response was made, its age then taken off.
    pub(crate) born: Timestamp,
    /// Until when its response allows it to be used without asking the resource.
    pub(crate) fresh_until: Timestamp,
    /// When the register was last asked whether this is the current version.
    pub(crate) checked: AtomicU64,
    /// A revision of the record at which this was the version, and no write in flight.
    pub(crate) settled: AtomicU64,
}

impl Known {
    /// Notes what the register said when it was asked at `now`: the record has this revision, in which this is the
    /// version, and no write is in flight.
    pub(crate) fn confirm(&self, now: Timestamp, settled: Revision) {
        self.checked.fetch_max(now.micros(), Ordering::AcqRel);
        self.settled.store(settled.get(), Ordering::Release);
    }

    /// Whether this is the current version as long as the record has this revision. False: the record will tell.
    pub(crate) fn is_settled_at(&self, revision: Revision) -> bool {
        self.settled.load(Ordering::Acquire) == revision.get()
    }

    /// When the register was last asked.
    pub(crate) fn confirmed(&self) -> Timestamp {
        Timestamp::from_micros(self.checked.load(Ordering::Acquire))
    }

    fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        size_of::<Self>() + self.variant.0.len() + self.tag.as_bytes().len() + headers
    }
}

impl Entry {
    /// The most representations remembered of one resource; the oldest goes first.
    const MAX_KNOWN: usize = 16;

    /// The representation that a request with this query and these header fields selects.
    pub(crate) fn find(&self, query: Option<&str>, headers: &HeaderMap) -> Option<&Arc<Known>> {
        let variant = self.vary.select(query, headers)?;
        self.known.iter().find(|known| known.variant == variant)
    }

    /// The entry with one more representation. Those that were selected by other header fields go.
    pub(crate) fn with(&self, vary: Vary, new: Known) -> Self {
        let same = |known: &&Arc<Known>| self.vary == vary && known.variant != new.variant;
        let mut known: Vec<_> = self.known.iter().filter(same).cloned().collect();
        if known.len() >= Self::MAX_KNOWN {
            known.remove(0);
        }
        known.push(Arc::new(new));
        let size = size_of::<Self>() + known.iter().map(|known| known.size()).sum::<usize>();
        Self { vary, known, size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 100_000;

    fn key(number: usize) -> Key {
        Key::new(format!("/{number}")).unwrap()
    }

    fn known(variant: &str, size: usize) -> Known {
        let mut headers = HeaderMap::new();
        headers.insert("x", HeaderValue::try_from("x".repeat(size)).unwrap());
        Known {
            variant: Variant(variant.into()),
            generation: Revision::new(1),
            tag: EntityTag::strong("1").unwrap(),
            last_modified: HttpDate::from_unix(1),
            date: HttpDate::from_unix(1).to_header(),
            headers,
            born: Timestamp::default(),
            fresh_until: Timestamp::default(),
            checked: AtomicU64::new(0),
            settled: AtomicU64::new(1),
        }
    }

    #[test]
    fn what_is_remembered_is_found_until_it_is_forgotten() {
        let memory = Memory::with_capacity(CAPACITY);
        memory.remember(&key(1), Vary::default(), known("a", 10));
        memory.remember(&key(1), Vary::default(), known("b", 10));
        memory.remember(&key(2), Vary::default(), known("a", 10));
        assert!(memory.get(&key(1)).unwrap().find(None, &HeaderMap::new()).is_none());
        memory.remember(&key(1), Vary::default(), known(&Variant::only().0, 10));
        assert!(memory.get(&key(1)).unwrap().find(None, &HeaderMap::new()).is_some());
        memory.forget(&key(1));
        assert!(memory.get(&key(1)).is_none());
        assert!(memory.get(&key(2)).is_some());
    }

    #[test]
    fn its_bytes_are_bounded() {
        let memory = Memory::with_capacity(CAPACITY);
        for number in 0..500 {
            memory.remember(&key(number), Vary::default(), known("a", 4_000));
        }
        let kept = (0..500).filter(|number| memory.get(&key(*number)).is_some()).count();
        assert!((1..=25).contains(&kept), "{kept} entries of 4,000 bytes in {CAPACITY} bytes");
    }

    #[test]
    fn what_is_larger_than_all_of_it_is_not_kept() {
        let memory = Memory::with_capacity(CAPACITY);
        memory.remember(&key(1), Vary::default(), known("a", 200_000));
        for number in 2..1_000 {
            memory.remember(&key(number), Vary::default(), known("a", 10));
        }
        assert!(memory.get(&key(1)).is_none());
    }
}
