//! The memory on platforms with threads and a clock: moka.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use super::Entry;
use crate::key::Key;

/// What moka, the allocator and other bookkeeping take for each entry, as measured with many small ones.
const PER_ENTRY: u64 = 1_024;

/// The memory.
#[derive(Debug)]
pub(crate) struct Memory {
    entries: Cache<Key, Arc<Entry>, SeedableRandomState>,
    /// The bytes that came since moka last looked at its limit.
    unchecked: AtomicU64,
    /// How many of them may come before it must look again.
    slack: u64,
    evictions: Arc<AtomicU64>,
}

impl Memory {
    /// A memory of so many bytes; it may exceed them by a 64th for a moment.
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        let evictions = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&evictions);
        let entries = Cache::builder()
            .max_capacity(bytes)
            .weigher(|key: &Key, entry: &Arc<Entry>| u32::try_from(weight(key, entry)).unwrap_or(u32::MAX))
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build_with_hasher(hasher());
        Self { entries, unchecked: AtomicU64::new(0), slack: bytes / 64, evictions }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    pub(crate) fn insert(&self, key: &Key, entry: Arc<Entry>) {
        let weight = weight(key, &entry);
        self.entries.insert(key.clone(), entry);
        if self.unchecked.fetch_add(weight, Ordering::Relaxed).saturating_add(weight) > self.slack {
            self.unchecked.store(0, Ordering::Relaxed);
            self.entries.run_pending_tasks();
        }
    }

    /// Tells whether responses were stored.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.entries.remove(key).is_some_and(|entry| !entry.variants.is_empty())
    }

    /// The keys that begin so.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<Key> {
        let keys = self.entries.iter().map(|(key, _)| Key::clone(&key));
        keys.filter(|key| key.as_str().starts_with(prefix)).collect()
    }

    /// The bytes that are stored.
    pub(crate) fn weight(&self) -> u64 {
        self.entries.run_pending_tasks();
        self.entries.weighted_size()
    }

    /// How many entries went because the memory was full.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

/// A quick hasher, seeded from the system's random numbers: who chooses URIs cannot know which of them collide.
fn hasher() -> SeedableRandomState {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let random = || RandomState::new().hash_one(());
    SeedableRandomState::with_seed(random(), SHARED.get_or_init(|| SharedSeed::from_u64(random())))
}

fn weight(key: &Key, entry: &Entry) -> u64 {
    PER_ENTRY + key.as_str().len() as u64 + entry.size()
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use ifmatch_core::date::Timestamp;

    use super::*;
    use crate::content::Content;
    use crate::stored::{Body, Came, Meta, Stored};

    fn entry(len: usize) -> Arc<Entry> {
        let request = HeaderMap::new();
        let (requested, received) = (Timestamp::default(), Timestamp::default());
        let came = Came {
            request: &request,
            implicit: "",
            began: 1,
            requested,
            received,
            heuristic: None,
            unstored: &[],
            always_validate: false,
        };
        let meta = Arc::new(Meta::new(StatusCode::OK, &HeaderMap::new(), &came));
        let content = Content::compact(&[Bytes::from(vec![0; len])].into(), None);
        let stored = Stored { meta, body: Body::Whole(Arc::new(content)) };
        Entry::default().with(stored).unwrap()
    }

    #[test]
    fn the_limit_holds_between_two_looks_at_it() {
        let memory = Memory::with_capacity(1_000_000);
        let mut inserted: Vec<Weak<Entry>> = Vec::new();
        for at in 0..1_000 {
            let entry = entry(50_000);
            inserted.push(Arc::downgrade(&entry));
            memory.insert(&Key::parse(&format!("http://a.example/{at}")).remove(0), entry);
            let alive = memory.entries.iter().count();
            assert!(alive <= 21, "{alive} entries of 50,000 bytes");
        }
        // What went is freed a little later at the most.
        let alive = inserted.iter().filter(|entry| entry.strong_count() > 0).count();
        assert!(alive <= 40, "{alive} entries are in memory");
    }

    #[test]
    fn what_cannot_fit_is_not_kept() {
        let memory = Memory::with_capacity(100_000);
        let key = Key::parse("http://a.example/").remove(0);
        memory.insert(&key, entry(200_000));
        assert!(memory.get(&key).is_none());
        assert_eq!(memory.weight(), 0);
    }
}
