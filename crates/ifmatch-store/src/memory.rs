//! The register in this process's memory: for one process, or for tests.

use std::collections::hash_map::RandomState;
use std::future::{Future, ready};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ifmatch_core::record::{Record, Revision};
use indexmap::IndexMap;

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
    /// The highest revisions forgotten for want of room, by the hash of the key. A key without a record has this
    /// revision: a read that began before cannot then record what it saw as if nothing had happened since.
    forgotten: Box<[Revision; FORGOTTEN]>,
}

impl MemoryRegister {
    /// A register that holds about `records` at the most: for services whose resources can be probed.
    pub fn with_capacity(records: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect();
        Self { shards, hasher: RandomState::new(), shard_capacity: records.div_ceil(SHARDS).max(1) }
    }

    /// A register that forgets nothing: for stores whose index it is.
    pub fn unbounded() -> Self {
        Self::with_capacity(usize::MAX)
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        lock(&self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or_default()])
    }

    fn swap(&self, key: &Key, expected: Revision, next: Option<&Record>) -> Result<Swap, RegisterError> {
        let mut shard = self.shard(key);
        let found = shard.find(key);
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
    fn load(&self, key: &Key) -> impl Future<Output = Result<Option<Record>, RegisterError>> + Send {
        ready(Ok(self.shard(key).find(key)))
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        Some(self.shard(key).revision(key))
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
    fn new() -> Self {
        Self { records: IndexMap::default(), forgotten: Box::new([Revision::NONE; FORGOTTEN]) }
    }

    fn find(&self, key: &Key) -> Option<Record> {
        let forgotten = || Some(self.forgotten(key)).filter(|at| *at > Revision::NONE).map(Record::forgotten);
        self.records.get(key).cloned().or_else(forgotten)
    }

    fn revision(&self, key: &Key) -> Revision {
        self.records.get(key).map_or_else(|| self.forgotten(key), Record::revision)
    }

    fn forgotten(&self, key: &Key) -> Revision {
        self.forgotten[self.slot(key)]
    }

    fn slot(&self, key: &Key) -> usize {
        usize::try_from(self.records.hasher().hash_one(key) % FORGOTTEN as u64).unwrap_or_default()
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
        let slot = self.slot(&key);
        self.forgotten[slot] = self.forgotten[slot].max(record.revision());
        Ok(())
    }
}

/// No code panics while it holds the lock, so a poisoned shard is whole.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
