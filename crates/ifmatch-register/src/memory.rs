//! A register in memory.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ifmatch_core::date::HttpDate;
use ifmatch_core::record::{Record, Revision};
use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;

use crate::key::Key;
use crate::register::{Engine, Guarantee, Register, RegisterError, RegisterErrorKind, Scan, Swap};

const SHARDS: usize = 64;
/// Number of slots per shard for the revisions of evicted records. Keys that share a slot are revalidated needlessly after
/// an eviction.
const FORGOTTEN: usize = 256;
/// Number of records that a full shard checks to find one to evict.
const EVICTION_TRIES: usize = 32;

/// A register in memory, for a single process or for tests. Its records end with the process.
///
/// With a capacity, it evicts records that a probe of the resource would restore, and fails with
/// [`RegisterErrorKind::Full`] if all records belong to writes in flight. Without a capacity, it evicts nothing.
#[derive(Debug)]
pub struct MemoryRegister {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    shard_capacity: usize,
}

#[derive(Debug)]
struct Shard {
    records: IndexMap<Key, Record, RandomState>,
    /// Highest revision and latest date of evicted records, by the hash of the key. A key without a record has this
    /// revision, so that a read which began before the eviction cannot record a stale observation.
    forgotten: Box<[(Revision, HttpDate); FORGOTTEN]>,
}

impl MemoryRegister {
    /// Creates a register of about `records` records at most, for services with resources that can be probed.
    pub fn with_capacity(records: usize) -> Self {
        let hasher = RandomState::new();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(hasher.clone()))).collect();
        Self { shards, hasher, shard_capacity: records.div_ceil(SHARDS).max(1) }
    }

    /// Creates a register that evicts nothing, for stores that use it as their index.
    pub fn unbounded() -> Self {
        Self::with_capacity(usize::MAX)
    }

    /// Returns the shard of a key and the key's hash.
    fn shard(&self, key: &Key) -> (MutexGuard<'_, Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // Uses other bits than the shard's own table.
        let number = index((hash >> 32) % SHARDS as u64);
        (lock(&self.shards[number]), hash)
    }

    fn swap(&self, key: &Key, expected: Revision, next: Option<&Record>) -> Result<Swap, RegisterError> {
        let (mut shard, hash) = self.shard(key);
        let found = shard.find(key, hash);
        if found.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(found));
        }
        let Some(next) = next else {
            shard.records.swap_remove(key);
            return Ok(Swap::Done);
        };
        if let Some(record) = shard.records.get_mut(key) {
            *record = next.clone();
        } else {
            if shard.records.len() >= self.shard_capacity {
                shard.forget_one(next.revision())?;
            }
            shard.records.insert(key.clone(), next.clone());
        }
        Ok(Swap::Done)
    }

    fn page(&self, scan: &Scan<'_>) -> Vec<(Key, Record)> {
        let listed =
            |key: &Key| key.as_str().starts_with(scan.prefix) && scan.after.is_none_or(|after| key.as_str() > after);
        let mut page: Vec<(Key, Record)> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let records = shard.records.iter().filter(|(key, _)| listed(key));
            page.extend(records.map(|(key, record)| (key.clone(), record.clone())));
            page.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
            page.truncate(scan.limit);
        }
        page
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let (shard, hash) = self.shard(key);
        Ok(shard.find(key, hash))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.swap(key, expected, next)
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Ok(self.page(scan))
    }

    fn engine(&self) -> Engine {
        Engine { guarantee: Guarantee::Process, ..Engine::default() }
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        let (shard, hash) = self.shard(key);
        Some(shard.revision(key, hash))
    }
}

impl Shard {
    fn new(hasher: RandomState) -> Self {
        Self {
            records: IndexMap::with_hasher(hasher),
            forgotten: Box::new([(Revision::NONE, HttpDate::MIN); FORGOTTEN]),
        }
    }

    fn find(&self, key: &Key, hash: u64) -> Option<Record> {
        let (revision, latest) = self.forgotten[slot(hash)];
        let forgotten = || (revision > Revision::NONE).then(|| Record::forgotten(revision).dated(latest));
        self.record(key, hash).cloned().or_else(forgotten)
    }

    fn revision(&self, key: &Key, hash: u64) -> Revision {
        self.record(key, hash).map_or_else(|| self.forgotten[slot(hash)].0, Record::revision)
    }

    fn record(&self, key: &Key, hash: u64) -> Option<&Record> {
        self.records.raw_entry_v1().from_key_hashed_nocheck(hash, key).map(|(_, record)| record)
    }

    /// Evicts an arbitrary record that a probe would restore. The newcomer's revision is close to the current time.
    fn forget_one(&mut self, newcomer: Revision) -> Result<(), RegisterError> {
        let len = self.records.len();
        let start = index(newcomer.get() % len as u64);
        let idle = (start..start + EVICTION_TRIES.min(len)).map(|at| at % len).find(|at| {
            let found = self.records.get_index(*at);
            found.is_some_and(|(_, record)| record.is_idle(newcomer.timestamp()))
        });
        let (key, record) = idle.and_then(|at| self.records.swap_remove_index(at)).ok_or(RegisterErrorKind::Full)?;
        let (revision, latest) = &mut self.forgotten[slot(self.records.hasher().hash_one(&key))];
        *revision = record.revision().max(*revision);
        *latest = record.latest_date().max(*latest);
        Ok(())
    }
}

/// Returns the slot for the revisions of evicted records with this hash.
fn slot(hash: u64) -> usize {
    index(hash % FORGOTTEN as u64)
}

#[expect(clippy::expect_used, reason = "the number is a remainder of a usize")]
fn index(remainder: u64) -> usize {
    usize::try_from(remainder).expect("less than a usize")
}

/// No code panics while it holds the lock, so a poisoned shard is whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
