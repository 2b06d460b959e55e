//! The entries in memory, bounded by bytes: `quick_cache`. Its CLOCK-Pro policy keeps repeatedly requested entries when
//! others are requested once.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::entry::CacheEntry;
use super::spill::SpillSender;
use crate::request::key::CacheKey;

/// Upper bound of the overhead per entry in the library, the allocator and other bookkeeping.
const PER_ENTRY: u64 = 1_024;

/// Approximate minimum size of an entry, used to size the history of evicted entries.
const LEAST: u64 = 2_048;

/// Maximum number of shards, which are locked separately.
const MOST_SHARDS: u64 = 16;

/// Minimum size of a shard: each must have room for several of the largest bodies.
const LEAST_SHARD: u64 = 64 * 1024 * 1024;

/// Entries by URI, bounded by bytes.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    entries: Cache<CacheKey, Arc<CacheEntry>, EntryWeights, SeedableRandomState, EvictionListener>,
    evictions: Arc<AtomicU64>,
    spill: Option<SpillSender>,
}

/// Entries removed from the memory. Dropping them may delete files, so drop this after releasing all locks.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct RemovedEntries(Vec<Arc<CacheEntry>>);

impl MemoryStore {
    /// Creates a memory of this capacity, for bodies of up to `longest` bytes. Evicted entries go to `spill`.
    #[expect(
        clippy::expect_used,
        reason = "the library asks for two capacities, and both are set"
    )]
    pub(crate) fn with_capacity(bytes: u64, longest: u64, spill: Option<SpillSender>) -> Self {
        let least = LEAST_SHARD.max(longest.saturating_mul(4)).max(1);
        // Half of the next power of two, since the library rounds up.
        let shards = (bytes / least).clamp(1, MOST_SHARDS);
        let shards = 1 << shards.ilog2();
        let items = usize::try_from(bytes / LEAST)
            .unwrap_or(usize::MAX / 2)
            .max(1);
        let mut options = OptionsBuilder::new();
        options
            .shards(shards)
            .weight_capacity(bytes)
            .estimated_items_capacity(items);
        let options = options.build().expect("both capacities are set");
        let evictions = Arc::new(AtomicU64::new(0));
        let lifecycle = EvictionListener {
            count: Arc::clone(&evictions),
            spill: spill.clone(),
        };
        let entries = Cache::with_options(options, EntryWeights, hasher(), lifecycle);
        Self {
            entries,
            evictions,
            spill,
        }
    }

    /// Returns the maximum size of an entry.
    pub(crate) fn largest(&self) -> u64 {
        self.entries.shard_capacity() / 2
    }

    /// Returns the entry of a requested URI, and marks it as used.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.entries.get(key)
    }

    /// Returns an entry for internal use, without marking it as used.
    pub(crate) fn peek(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.entries.peek(key)
    }

    /// Inserts an entry. A replacement inherits the position of the entry it replaces in the eviction order.
    pub(crate) fn insert(&self, key: &CacheKey, entry: Arc<CacheEntry>) -> RemovedEntries {
        let mut gone = RemovedEntries::default();
        let replaced = self
            .entries
            .replace_with_lifecycle(key.clone(), entry, true, &mut gone);
        if let Err((key, entry)) = replaced {
            self.entries.insert_with_lifecycle(key, entry, &mut gone);
        }
        gone
    }

    /// Returns `true` if there is an entry for a URI.
    pub(crate) fn has(&self, uri: &str) -> bool {
        self.entries.peek(uri).is_some()
    }

    pub(crate) fn remove(&self, key: &CacheKey) -> Option<Arc<CacheEntry>> {
        self.entries.remove(key).map(|(_, entry)| entry)
    }

    /// Returns the keys with this prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<CacheKey> {
        self.keys_where(|key| key.starts_with(prefix))
    }

    /// Returns the keys that are wanted.
    pub(crate) fn keys_where(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<CacheKey> {
        self.entries
            .iter()
            .map(|(key, _)| key)
            .filter(|key| is_wanted(key.as_str()))
            .collect()
    }

    /// Returns the number of bytes stored.
    pub(crate) fn weight(&self) -> u64 {
        self.entries.weight()
    }

    /// Returns the number of bytes of evicted entries that are on their way to the disk.
    pub(crate) fn spilling(&self) -> u64 {
        self.spill.as_ref().map_or(0, SpillSender::queued)
    }

    /// Returns the number of entries evicted because the memory was full.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Debug)]
struct EntryWeights;

impl Weighter<CacheKey, Arc<CacheEntry>> for EntryWeights {
    fn weight(&self, key: &CacheKey, entry: &Arc<CacheEntry>) -> u64 {
        PER_ENTRY + key.as_str().len() as u64 + entry.size
    }
}

/// Counts evicted entries, and hands them on.
#[derive(Clone, Debug)]
struct EvictionListener {
    count: Arc<AtomicU64>,
    spill: Option<SpillSender>,
}

impl Lifecycle<CacheKey, Arc<CacheEntry>> for EvictionListener {
    type RequestState = RemovedEntries;

    fn before_evict(&self, _: &mut RemovedEntries, key: &CacheKey, entry: &mut Arc<CacheEntry>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(spill) = &self.spill {
            spill.send(key, entry);
        }
    }

    fn on_evict(&self, gone: &mut RemovedEntries, _: CacheKey, entry: Arc<CacheEntry>) {
        gone.0.push(entry);
    }
}

/// A fast hasher with a random seed, so clients can't choose colliding URIs.
fn hasher() -> SeedableRandomState {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let random = || RandomState::new().hash_one(());
    SeedableRandomState::with_seed(
        random(),
        SHARED.get_or_init(|| SharedSeed::from_u64(random())),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};
    use std::sync::Weak;

    use bytes::Bytes;
    use http::{HeaderMap, Request, StatusCode};
    use ifmatch_core::date::Timestamp;

    use super::*;
    use crate::body::in_memory::MemoryBody;
    use crate::config::CacheConfig;
    use crate::store::stored_response::{ArrivalContext, StoredBody, StoredHead, StoredResponse};

    fn entry(len: usize) -> Arc<CacheEntry> {
        let (config, request) = (CacheConfig::default(), Request::new(()).into_parts().0);
        let moment = Timestamp::default();
        let arrival = ArrivalContext::new(&config, &request, "", 1, moment, moment);
        let meta = Arc::new(StoredHead::new(StatusCode::OK, &HeaderMap::new(), &arrival));
        let content = MemoryBody::compact(&[Bytes::from(vec![0; len])].into(), None);
        let stored = StoredResponse {
            meta,
            body: StoredBody::Whole(Arc::new(content)),
        };
        CacheEntry::default().with(stored, u64::MAX).unwrap()
    }

    fn key(at: usize) -> CacheKey {
        CacheKey::parse(&format!("http://a.example/{at}")).remove(0)
    }

    #[test]
    fn the_limit_always_holds() {
        let memory = MemoryStore::with_capacity(1_000_000, 250_000, None);
        let mut inserted: Vec<Weak<CacheEntry>> = Vec::new();
        for at in 0..1_000 {
            let entry = entry(50_000);
            inserted.push(Arc::downgrade(&entry));
            drop(memory.insert(&key(at), entry));
            assert!(memory.weight() <= 1_000_000);
            let alive = inserted
                .iter()
                .filter(|entry| entry.strong_count() > 0)
                .count();
            assert!(alive <= 20, "{alive} entries of 50,000 bytes");
        }
        assert_eq!(memory.evictions(), 1_000 - memory.keys("").len() as u64);
    }

    #[test]
    fn entries_beyond_the_capacity_are_not_stored() {
        let memory = MemoryStore::with_capacity(100_000, 25_000, None);
        drop(memory.insert(&key(0), entry(200_000)));
        assert!(memory.get(&key(0)).is_none());
        assert_eq!(memory.weight(), 0);
    }

    #[test]
    fn evicted_entries_are_returned() {
        let memory = MemoryStore::with_capacity(100_000, 25_000, None);
        let mut held = Vec::new();
        for at in 0..10 {
            held.push(memory.insert(&key(at), entry(20_000)));
        }
        let handed: usize = held.iter().map(|gone| gone.0.len()).sum();
        assert_eq!(handed, 10 - memory.keys("").len());
        // Replacing an entry isn't an eviction.
        let before = memory.evictions();
        let last = memory.keys("").remove(0);
        assert_eq!(memory.insert(&last, entry(10)).0.len(), 1);
        assert_eq!(memory.evictions(), before);
    }

    /// Returns the hits of a trace in this memory, with room for the given number of equal-sized objects.
    fn hits(trace: &[usize], room: u64) -> usize {
        let one = entry(1_000);
        let memory = MemoryStore::with_capacity(room * (PER_ENTRY + 20 + one.size), 1_000, None);
        let asked = |object: &&usize| {
            let key = key(100_000 + **object);
            let hit = memory.get(&key).is_some();
            if !hit {
                drop(memory.insert(&key, Arc::clone(&one)));
            }
            hit
        };
        trace.iter().filter(asked).count()
    }

    /// Returns the hits of a trace in an LRU cache.
    fn hits_of_lru(trace: &[usize], room: usize) -> usize {
        let (mut used, mut order, mut hits) = (HashMap::new(), VecDeque::new(), 0);
        for (now, object) in trace.iter().enumerate() {
            hits += usize::from(used.insert(*object, now).is_some());
            order.push_back((*object, now));
            while used.len() > room {
                let Some((oldest, when)) = order.pop_front() else {
                    break;
                };
                if used.get(&oldest) == Some(&when) {
                    used.remove(&oldest);
                }
            }
        }
        hits
    }

    /// Returns pseudo-random numbers, the same in each run.
    fn dice() -> impl FnMut(usize) -> usize {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move |sides| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % sides as u64).unwrap()
        }
    }

    #[test]
    fn a_hot_set_survives_objects_requested_once() {
        let mut dice = dice();
        let mut trace: Vec<usize> = (0..2_000).map(|at| at % 500).collect();
        let warm = trace.len();
        for at in 0..20_000 {
            trace.push(if at % 3 == 0 { dice(500) } else { 1_000 + at });
        }
        let hot = (trace.len() - warm) / 3;
        let found = hits(&trace, 600) - hits(&trace[..warm], 600);
        assert!(found * 100 >= hot * 95, "{found} of {hot}");
        let lru = hits_of_lru(&trace, 600);
        assert!(lru * 100 < (hot + warm) * 60, "LRU fails here: {lru}");
    }

    #[test]
    fn a_skewed_trace_has_at_least_the_hits_of_lru() {
        let mut dice = dice();
        // The product of three uniform numbers is skewed.
        let trace: Vec<usize> = (0..100_000)
            .map(|_| (dice(100) + 1) * (dice(100) + 1) * (dice(10) + 1) / 10)
            .map(|rank| rank % 10_000)
            .collect();
        let (ours, lru) = (hits(&trace, 500), hits_of_lru(&trace, 500));
        assert!(ours >= lru, "{ours}, and by LRU {lru}");
    }

    #[test]
    fn large_objects_are_admitted() {
        let memory = MemoryStore::with_capacity(4 << 20, 1 << 20, None);
        let small = entry(1_000);
        for at in 0..6_000 {
            drop(memory.insert(&key(at % 3_000), Arc::clone(&small)));
        }
        let found = (0..40).find(|round| {
            let hit = memory.get(&key(9_999)).is_some();
            if !hit {
                drop(memory.insert(&key(9_999), entry(900_000)));
            }
            for at in 0..5 {
                let key = key((round * 7 + at * 13) % 3_000);
                if memory.get(&key).is_none() {
                    drop(memory.insert(&key, Arc::clone(&small)));
                }
            }
            hit
        });
        assert!(found.is_some(), "not stored");
    }
}
