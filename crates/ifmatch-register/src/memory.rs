//! The register in this process's memory: for one process, or for tests.

use std::collections::hash_map::RandomState;
use std::future::{Future, ready};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::date::HttpDate;
use ifmatch_core::record::{Record, Revision};
use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;

use crate::key::Key;
use crate::register::{Register, RegisterError, RegisterErrorKind, Scan, Swap};

const SHARDS: usize = 64;
/// How many revisions of forgotten records a shard tells apart. One read in so many, at the most, is asked again for
/// nothing when a record is forgotten.
const FORGOTTEN: usize = 256;
/// How many records a full shard looks at to find one that it may forget.
const EVICTION_TRIES: usize = 32;

/// A register in memory. Its records end with the process.
///
/// With a capacity it forgets records that say no more than a probe of the resource would, and refuses
/// ([`RegisterErrorKind::Full`]) when all are of writes in flight. Without one it forgets nothing.
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
    /// A register that holds about `records` at the most: for services whose resources can be probed.
    pub fn with_capacity(records: usize) -> Self {
        let hasher = RandomState::new();
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(hasher.clone()))).collect();
        Self { shards, hasher, shard_capacity: records.div_ceil(SHARDS).max(1) }
    }

    /// A register that forgets nothing: for stores whose index it is.
    pub fn unbounded() -> Self {
        Self::with_capacity(usize::MAX)
    }

    /// The shard of a key, and the key's hash.
    fn shard(&self, key: &Key) -> (MutexGuard<'_, Shard>, u64) {
        let hash = self.hasher.hash_one(key);
        // By other bits than the shard's own table goes by.
        let number = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or_default();
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

impl Register for MemoryRegister {
    fn forgets(&self) -> bool {
        true
    }

    fn load(&self, key: &Key) -> impl Future<Output = Result<Option<Record>, RegisterError>> + Send {
        let (shard, hash) = self.shard(key);
        ready(Ok(shard.find(key, hash)))
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        let (shard, hash) = self.shard(key);
        Some(shard.revision(key, hash))
    }

    fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> impl Future<Output = Result<Swap, RegisterError>> + Send {
        ready(self.swap(key, expected, next))
    }

    fn scan(&self, scan: &Scan<'_>) -> impl Future<Output = Result<Vec<(Key, Record)>, RegisterError>> + Send {
        ready(Ok(self.page(scan)))
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

    /// Forgets a record chosen by chance that says no more than a probe would. The newcomer's revision is about now.
    fn forget_one(&mut self, newcomer: Revision) -> Result<(), RegisterError> {
        let len = self.records.len();
        let start = usize::try_from(newcomer.get() % len as u64).unwrap_or_default();
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

/// Where the revisions of forgotten records with this hash are kept.
fn slot(hash: u64) -> usize {
    usize::try_from(hash % FORGOTTEN as u64).unwrap_or_default()
}

/// No code panics while it holds the lock, so a poisoned shard is whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
