//! The table of stored responses. A lookup after an invalidation finds nothing that was requested before it.
//!
//! Requests to the origin and invalidations draw ordinals from one counter. Each shard remembers the last invalidations of
//! its URIs, and the table remembers prefixes and groups. A response to an earlier request isn't stored. Comparing and
//! storing is one step under the shard's lock, and so is remembering and removing.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use ifmatch_core::date::Timestamp;

use crate::body::folder::CacheFolder;
use crate::metrics::Outcome;
use crate::policy::vary::{Selection, Vary};
use crate::request::key::CacheKey;
use crate::store::archive::{DiskArchive, EARLIER, LoadedResponse, PurgeScope};
use crate::store::entry::{CacheEntry, OriginFailure};
use crate::store::invalidation_log::{GroupInvalidations, KeyInvalidations, PrefixInvalidations};
use crate::store::memory::{MemoryStore, RemovedEntries};
use crate::store::spill::{SpillReceiver, SpillSender};
use crate::store::stored_response::{StoredHead, StoredResponse};

/// Number of locks that the URIs are distributed among.
const SHARDS: usize = 1 << 10;

/// The stored responses, in memory and on disk.
#[derive(Debug)]
pub(crate) struct EntryTable {
    pub(crate) memory: MemoryStore,
    archive: Option<DiskArchive>,
    groups: GroupInvalidations,
    /// Soft purges of groups. Responses stored before were made stale.
    soft_groups: GroupInvalidations,
    prefixes: PrefixInvalidations,
    /// Invalidations of single URIs. Changes to an entry hold the lock of its shard.
    shards: Box<[Mutex<KeyInvalidations>]>,
    hasher: RandomState,
    ordinals: AtomicU64,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    /// Index of the selected response in the entry.
    selected: Option<usize>,
    pub(crate) entry: Arc<CacheEntry>,
}

impl FoundEntry {
    /// Returns the stored response that the request selects.
    pub(crate) fn stored(&self) -> Option<&StoredResponse> {
        self.entry.variants.get(self.selected?)
    }
}

/// The result of an invalidation.
#[derive(Debug)]
pub(crate) struct InvalidationResult {
    /// `true` if a response was stored.
    pub(crate) found: bool,
    /// Ordinal of the previous invalidation that may have been of the same URI.
    pub(crate) before: u64,
    pub(crate) ordinal: u64,
}

impl EntryTable {
    /// Creates a table of this capacity in bytes, for bodies of up to `longest` bytes in memory. With a folder, also returns
    /// the queue of evicted responses.
    pub(crate) fn new(
        bytes: u64,
        longest: u64,
        disk: Option<&Arc<CacheFolder>>,
    ) -> (Self, Option<SpillReceiver>) {
        let (spill, spilled) = disk.map(|_| SpillSender::with_capacity(bytes / 16)).unzip();
        let memory = MemoryStore::with_capacity(bytes, longest, spill);
        let archive = disk.map(|disk| DiskArchive::new(Arc::clone(disk)));
        (Self::of(memory, archive), spilled)
    }

    fn of(memory: MemoryStore, archive: Option<DiskArchive>) -> Self {
        Self {
            memory,
            archive,
            groups: GroupInvalidations::default(),
            soft_groups: GroupInvalidations::default(),
            prefixes: PrefixInvalidations::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            ordinals: AtomicU64::new(EARLIER + 1),
        }
    }

    /// Draws the ordinal of a request to the origin, or of an invalidation.
    pub(crate) fn next_ordinal(&self) -> u64 {
        self.ordinals.fetch_add(1, Ordering::SeqCst)
    }

    /// Looks up the response that a request selects.
    pub(crate) fn find(
        &self,
        key: &CacheKey,
        request: &HeaderMap,
        implicit_key: &str,
    ) -> FoundEntry {
        let entry = self.memory.get(key).unwrap_or_default();
        let selected = self.select(key, &entry, request, implicit_key);
        if let Some(stored) = selected
            .and_then(|at| entry.variants.get(at))
            .filter(|_| entry.variants.len() > 1)
        {
            stored.meta.note_use(self.ordinals.load(Ordering::Relaxed));
        }
        FoundEntry { selected, entry }
    }

    /// Selects the newest matching response, preferring one with `Vary`: one without may be the default, which the origin
    /// sends without saying so (RFC 9111 §4.1).
    fn select(
        &self,
        key: &CacheKey,
        entry: &CacheEntry,
        request: &HeaderMap,
        implicit_key: &str,
    ) -> Option<usize> {
        // Most variants vary by the same fields.
        let mut last: Option<(&Vary, Selection)> = None;
        let mut newest = None;
        for (at, stored) in entry.variants.iter().enumerate() {
            let secondary_key = &stored.meta.secondary_key;
            if &*secondary_key.implicit_key != implicit_key {
                continue;
            }
            let same = last.take().filter(|(vary, _)| **vary == secondary_key.vary);
            let (_, selection) = last.insert(
                same.unwrap_or_else(|| (&secondary_key.vary, secondary_key.vary.select(request))),
            );
            let matches = secondary_key.selection == *selection;
            if !matches || !stored.is_there() || !self.is_selectable(key, stored) {
                continue;
            }
            if stored.varies() {
                return Some(at);
            }
            newest = newest.or(Some(at));
        }
        newest
    }

    /// Returns `true` if no group of the response was invalidated since its request. Soft purges don't count.
    pub(crate) fn is_selectable(&self, key: &CacheKey, stored: &StoredResponse) -> bool {
        is_newer(&self.groups, key, &stored.meta.groups, stored.meta.began)
    }

    /// Returns `true` if no group of the response was invalidated or purged since its request.
    pub(crate) fn is_valid(&self, key: &CacheKey, stored: &StoredResponse) -> bool {
        self.are_valid(key, &stored.meta.groups, stored.meta.began)
    }

    /// Returns `true` if none of these groups of a URI's origin was invalidated or purged since a request with this
    /// ordinal.
    pub(crate) fn are_valid(&self, key: &CacheKey, groups: &[Box<str>], began: u64) -> bool {
        [&self.groups, &self.soft_groups]
            .iter()
            .all(|known| is_newer(known, key, groups, began))
    }

    /// Stores a response, unless its URI was invalidated since its request. `merge` receives the response stored for the
    /// same requests, and returns the one to store.
    pub(crate) fn store(
        &self,
        key: &CacheKey,
        new: StoredResponse,
        merge: impl FnOnce(&StoredResponse, StoredResponse) -> StoredResponse,
    ) -> bool {
        let stored = self.store_in_memory(key, new, merge);
        if let (Some(archive), Some(stored)) = (&self.archive, &stored) {
            archive.follow(key, stored, || self.is_current(key, &stored.meta));
        }
        stored.is_some()
    }

    /// Returns `true` if a response hasn't been invalidated since its request.
    fn is_current(&self, key: &CacheKey, meta: &StoredHead) -> bool {
        meta.began >= self.last_invalidation(key) && self.are_valid(key, &meta.groups, meta.began)
    }

    /// Writes an evicted entry to disk, except for responses that have been replaced or can't be used again.
    pub(crate) fn spill(&self, key: &CacheKey, entry: &CacheEntry) {
        let Some(archive) = &self.archive else { return };
        for stored in entry
            .variants
            .iter()
            .filter(|stored| stored.meta.is_useful())
        {
            let is_replaced = || {
                let known = self.memory.peek(key);
                known.is_some_and(|known| {
                    known
                        .variants
                        .iter()
                        .any(|known| known.is_for_the_same(stored))
                })
            };
            archive.spill(key, stored, || {
                self.is_current(key, &stored.meta) && !is_replaced()
            });
        }
    }

    /// Makes the changes on disk durable.
    pub(crate) fn sync(&self) {
        if let Some(archive) = &self.archive {
            archive.sync();
        }
    }

    /// Returns `true` if the disk has responses for a URI.
    pub(crate) fn is_on_disk(&self, key: &CacheKey) -> bool {
        self.archive
            .as_ref()
            .is_some_and(|archive| archive.has_any(key))
    }

    /// Returns the number of bytes of bodies on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.archive.as_ref().map_or(0, DiskArchive::bytes)
    }

    /// Reads the response that a request selects from disk. Waits for the disk.
    pub(crate) fn load(
        &self,
        key: &CacheKey,
        request: &HeaderMap,
        implicit_key: &str,
    ) -> Option<FoundEntry> {
        let archive = self.archive.as_ref()?;
        let loaded = archive.load(key, request, implicit_key)?;
        let entry = self.admit(archive, key, &loaded)?;
        Some(FoundEntry {
            selected: self.select(key, &entry, request, implicit_key),
            entry,
        })
    }

    /// Adds a response from disk to the memory, unless it was removed or replaced since it was read. Returns the entry even
    /// if the memory doesn't keep it.
    pub(super) fn admit(
        &self,
        archive: &DiskArchive,
        key: &CacheKey,
        loaded: &LoadedResponse,
    ) -> Option<Arc<CacheEntry>> {
        let mut admitted = None;
        drop(self.change(key, |entry| {
            let entry = entry.cloned().unwrap_or_default();
            let is_replaced = entry
                .variants
                .iter()
                .any(|known| known.is_for_the_same(&loaded.stored));
            // Under the lock of the shard: see the module about the archive.
            let is_current = !is_replaced && archive.has(loaded);
            admitted = is_current
                .then(|| entry.with(loaded.stored.clone(), self.memory.largest()))
                .flatten();
            admitted.clone()
        }));
        admitted
    }

    fn store_in_memory(
        &self,
        key: &CacheKey,
        new: StoredResponse,
        merge: impl FnOnce(&StoredResponse, StoredResponse) -> StoredResponse,
    ) -> Option<StoredResponse> {
        let hash = self.hash(key);
        let shard = self.shard(hash);
        let is_newest = is_newer(&self.soft_groups, key, &new.meta.groups, new.meta.began);
        if !is_newest || new.meta.began < self.last_invalidation_in(&shard, hash, key) {
            return None;
        }
        let entry = self.memory.peek(key).unwrap_or_default();
        let new = match entry.variants.iter().find(|old| old.is_for_the_same(&new)) {
            Some(old) => merge(old, new),
            None => new,
        };
        let gone = entry
            .with(new.clone(), self.memory.largest())
            .map(|next| self.memory.insert(key, next));
        drop(shard);
        gone.map(|_| new)
    }

    /// Removes one stored response.
    pub(crate) fn discard(&self, key: &CacheKey, old: &StoredResponse) {
        drop(self.change(key, |entry| entry?.without(old)));
        if let Some(archive) = &self.archive {
            archive.remove_variant(key, &old.meta);
        }
    }

    /// Notes that responses for the URI aren't expected to be storable.
    pub(crate) fn expect_unshared(&self, key: &CacheKey, until: Timestamp, why: Outcome) {
        drop(self.change(key, |entry| {
            Some(Arc::new(CacheEntry {
                unshared_until: until,
                unstored: Some(why),
                ..entry.cloned().unwrap_or_default()
            }))
        }));
    }

    /// Notes that responses to requests with credentials aren't expected to be storable.
    pub(crate) fn expect_personal(&self, key: &CacheKey, until: Timestamp, why: Outcome) {
        drop(self.change(key, |entry| {
            Some(Arc::new(CacheEntry {
                personal_until: until,
                unstored: Some(why),
                ..entry.cloned().unwrap_or_default()
            }))
        }));
    }

    /// Notes that the origin fails for a URI with stored responses, or with `None` that it has recovered.
    pub(crate) fn note_failure(&self, key: &CacheKey, failing: Option<OriginFailure>) {
        drop(self.change(key, |entry| {
            let known = entry.filter(|entry| entry.failing != failing)?;
            Some(Arc::new(CacheEntry {
                failing,
                ..known.clone()
            }))
        }));
    }

    /// Replaces the entry of a URI. Returns what this removes from the memory, or `None` if the entry stays.
    fn change(
        &self,
        key: &CacheKey,
        make: impl FnOnce(Option<&CacheEntry>) -> Option<Arc<CacheEntry>>,
    ) -> Option<RemovedEntries> {
        let shard = self.shard(self.hash(key));
        let known = self.memory.peek(key);
        let gone = make(known.as_deref()).map(|next| self.memory.insert(key, next));
        drop(shard);
        gone
    }

    /// Removes all responses stored for a URI, and keeps pending ones from being stored. The removal survives a crash.
    pub(crate) fn invalidate(&self, key: &CacheKey) -> InvalidationResult {
        let first = self.invalidate_in_memory(key);
        let Some(archive) = &self.archive else {
            return first;
        };
        let on_disk = archive.remove(key);
        let second = self.invalidate_in_memory(key);
        let found = first.found || on_disk || second.found;
        // Another invalidation may have come in between.
        let before = if second.before == first.ordinal {
            first.before
        } else {
            second.before
        };
        InvalidationResult {
            found,
            before,
            ordinal: second.ordinal,
        }
    }

    fn invalidate_in_memory(&self, key: &CacheKey) -> InvalidationResult {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let (before, ordinal) = (
            self.last_invalidation_in(&shard, hash, key),
            self.next_ordinal(),
        );
        shard.add(hash, ordinal);
        let removed = self.memory.remove(key);
        drop(shard);
        InvalidationResult {
            found: removed.is_some_and(|entry| !entry.variants.is_empty()),
            before,
            ordinal,
        }
    }

    /// Removes all responses stored for URIs with any of these prefixes, and keeps pending ones from being stored. The removal
    /// survives a crash. Returns the number of URIs that had stored responses.
    pub(crate) fn invalidate_prefixes(&self, mut prefixes: Vec<String>) -> usize {
        prefixes.sort_unstable();
        // After the first of those that begin with it, a prefix has no effect.
        prefixes.dedup_by(|longer, shorter| longer.starts_with(&**shorter));
        let mut uris = self.invalidate_prefixes_in_memory(&prefixes);
        if let Some(archive) = &self.archive {
            uris.extend(
                prefixes
                    .iter()
                    .flat_map(|prefix| archive.remove_prefix(prefix)),
            );
            uris.extend(self.invalidate_prefixes_in_memory(&prefixes));
        }
        uris.len()
    }

    fn invalidate_prefixes_in_memory(&self, prefixes: &[String]) -> HashSet<String> {
        for prefix in prefixes {
            self.prefixes.add(prefix, || self.next_ordinal());
        }
        self.wait_for_writers();
        // None is a prefix of another one, so only the last one up to a key can be its prefix.
        let has_prefix = |key: &str| {
            let before = prefixes.partition_point(|prefix| &**prefix <= key);
            before > 0 && key.starts_with(&*prefixes[before - 1])
        };
        let remove = |key: &CacheKey| {
            // A writer that holds the lock now may put back the old entry.
            let shard = self.shard(self.hash(key));
            let removed = self.memory.remove(key);
            drop(shard);
            removed.is_some_and(|entry| !entry.variants.is_empty())
        };
        let removed = self
            .memory
            .keys_where(has_prefix)
            .into_iter()
            .filter(remove);
        removed.map(|key| key.as_str().to_owned()).collect()
    }

    /// Waits for the writers that may have read the prefixes or groups before an invalidation: once its lock is free, such
    /// a writer has stored its response.
    fn wait_for_writers(&self) {
        self.shards.iter().for_each(|shard| drop(lock(shard)));
    }

    /// Makes all responses stored for a URI stale, and keeps pending ones from being stored. Returns `true` if any changed.
    pub(crate) fn soft_purge(&self, key: &CacheKey, now: Timestamp) -> bool {
        let count = self.soft_purge_everywhere(&PurgeScope::Uri(key), now, || {
            self.soft_purge_in_memory(key, now).into()
        });
        count > 0
    }

    /// Purges the memory, the disk, and the memory again, for responses that were read from disk before.
    fn soft_purge_everywhere(
        &self,
        what: &PurgeScope<'_>,
        now: Timestamp,
        in_memory: impl Fn() -> usize,
    ) -> usize {
        let first = in_memory();
        let Some(archive) = &self.archive else {
            return first;
        };
        let is_known = |uri: &&String| self.memory.has(uri.as_str());
        let on_disk = archive.soft_purge(what, now);
        let only_on_disk = on_disk.len() - on_disk.iter().filter(is_known).count();
        first + only_on_disk + in_memory()
    }

    fn soft_purge_in_memory(&self, key: &CacheKey, now: Timestamp) -> bool {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        shard.add(hash, self.next_ordinal());
        let purged = self
            .memory
            .peek(key)
            .and_then(|entry| entry.purged(now, |_| true));
        let gone = purged.map(|next| self.memory.insert(key, next));
        drop(shard);
        gone.is_some()
    }

    /// Makes all responses stored for URIs with this prefix stale, and keeps pending ones from being stored. Returns the number of
    /// URIs changed.
    pub(crate) fn soft_purge_prefix(&self, prefix: &str, now: Timestamp) -> usize {
        let in_memory = || self.soft_purge_prefix_in_memory(prefix, now);
        self.soft_purge_everywhere(&PurgeScope::Prefix(prefix), now, in_memory)
    }

    fn soft_purge_prefix_in_memory(&self, prefix: &str, now: Timestamp) -> usize {
        let ordinal = self.prefixes.add(prefix, || self.next_ordinal());
        self.wait_for_writers();
        self.soft_purge_some(&self.memory.keys(prefix), now, |meta| meta.began < ordinal)
    }

    /// Makes all responses of an origin in a group stale, and keeps pending ones from being stored. Returns the number of URIs
    /// changed.
    pub(crate) fn soft_purge_group(&self, origin: &str, name: &str, now: Timestamp) -> usize {
        let in_memory = || self.soft_purge_group_in_memory(origin, name, now);
        self.soft_purge_everywhere(&PurgeScope::Group(origin, name), now, in_memory)
    }

    fn soft_purge_group_in_memory(&self, origin: &str, name: &str, now: Timestamp) -> usize {
        let ordinal = self.soft_groups.add(origin, name, || self.next_ordinal());
        self.wait_for_writers();
        let is_member = |meta: &StoredHead| {
            meta.began < ordinal && meta.groups.iter().any(|group| **group == *name)
        };
        let mut keys = self.memory.keys(origin);
        keys.retain(|key| key.origin() == origin);
        self.soft_purge_some(&keys, now, is_member)
    }

    fn soft_purge_some(
        &self,
        keys: &[CacheKey],
        now: Timestamp,
        is_purged: impl Fn(&StoredHead) -> bool,
    ) -> usize {
        let purge = |key: &&CacheKey| {
            self.change(key, |entry| entry?.purged(now, &is_purged))
                .is_some()
        };
        keys.iter().filter(purge).count()
    }

    /// Invalidates all responses of an origin in a group. They stay in memory until a [sweep](Self::sweep). Returns the
    /// number of URIs with responses only on disk.
    pub(crate) fn invalidate_group(&self, origin: &str, name: &str) -> usize {
        self.groups.add(origin, name, || self.next_ordinal());
        self.wait_for_writers();
        let removed = self
            .archive
            .as_ref()
            .map(|archive| archive.remove_group(origin, name));
        removed
            .unwrap_or_default()
            .iter()
            .filter(|uri| !self.memory.has(uri))
            .count()
    }

    /// Removes an origin's responses in invalidated groups. Returns the number of URIs changed.
    pub(crate) fn sweep(&self, origin: &str) -> usize {
        let sweep = |key: &CacheKey| {
            self.change(key, |entry| {
                let entry = entry.filter(|entry| {
                    entry
                        .variants
                        .iter()
                        .any(|stored| !self.is_selectable(key, stored))
                })?;
                let valid = entry
                    .variants
                    .iter()
                    .filter(|stored| self.is_selectable(key, stored))
                    .cloned()
                    .collect();
                Some(Arc::new(CacheEntry {
                    unshared_until: entry.unshared_until,
                    ..CacheEntry::of(valid)
                }))
            })
        };
        let keys = self
            .memory
            .keys(origin)
            .into_iter()
            .filter(|key| key.origin() == origin);
        keys.filter_map(|key| sweep(&key)).count()
    }

    /// Returns the ordinal of the last invalidation that may have included this key. Groups don't count.
    pub(crate) fn last_invalidation(&self, key: &CacheKey) -> u64 {
        let hash = self.hash(key);
        self.last_invalidation_in(&self.shard(hash), hash, key)
    }

    fn last_invalidation_in(&self, shard: &KeyInvalidations, hash: u64, key: &CacheKey) -> u64 {
        shard.last(hash).max(self.prefixes.last(key.as_str()))
    }

    /// Locks the shard of a key with this hash.
    fn shard(&self, hash: u64) -> MutexGuard<'_, KeyInvalidations> {
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[at])
    }

    fn hash(&self, key: &CacheKey) -> u64 {
        self.hasher.hash_one(key)
    }
}

/// Returns `true` if none of these groups of a URI's origin was invalidated since a request with this ordinal.
fn is_newer(
    invalidations: &GroupInvalidations,
    key: &CacheKey,
    groups: &[Box<str>],
    began: u64,
) -> bool {
    groups.is_empty() || invalidations.last(key.origin(), groups) < began
}

fn lock(shard: &Mutex<KeyInvalidations>) -> MutexGuard<'_, KeyInvalidations> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
