//! The table of stored responses. A lookup after an invalidation finds nothing that was requested before it.
//!
//! Requests to the origin and invalidations draw ordinals from one counter. Each shard remembers the last invalidations of
//! its URIs, and the table those of prefixes and groups; a response to an earlier request is not stored. Comparing and
//! storing is one step under the shard's lock, and so is remembering and removing.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use ifmatch_core::date::Timestamp;

use crate::policy::vary::{Selection, Vary};
use crate::request::key::Key;
use crate::store::entry::{Entry, Failing};
use crate::store::invalidation_log::{GroupInvalidations, KeyInvalidations, PrefixInvalidations};
use crate::store::memory::{Gone, Memory};
use crate::store::stored_response::{Meta, Stored};

const SHARDS: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) memory: Memory,
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
pub(crate) struct Found {
    /// Index of the selected response in the entry.
    selected: Option<usize>,
    pub(crate) entry: Arc<Entry>,
}

impl Found {
    /// Returns the stored response that the request selects.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        self.entry.variants.get(self.selected?)
    }
}

/// The result of an invalidation.
#[derive(Debug)]
pub(crate) struct Invalidated {
    /// `true` if a response was stored.
    pub(crate) found: bool,
    /// Ordinal of the previous invalidation that may have been of the same URI.
    pub(crate) before: u64,
    pub(crate) ordinal: u64,
}

impl Table {
    /// Creates a table of this capacity in bytes, for bodies of up to `longest` bytes.
    pub(crate) fn with_capacity(bytes: u64, longest: u64) -> Self {
        Self {
            memory: Memory::with_capacity(bytes, longest),
            groups: GroupInvalidations::default(),
            soft_groups: GroupInvalidations::default(),
            prefixes: PrefixInvalidations::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            ordinals: AtomicU64::new(1),
        }
    }

    /// Draws the ordinal of a request to the origin, or of an invalidation.
    pub(crate) fn next_ordinal(&self) -> u64 {
        self.ordinals.fetch_add(1, Ordering::SeqCst)
    }

    /// Looks up the response that a request selects.
    pub(crate) fn find(&self, key: &Key, request: &HeaderMap, implicit_key: &str) -> Found {
        let entry = self.memory.get(key).unwrap_or_default();
        let selected = self.select(key, &entry, request, implicit_key);
        if let Some(stored) = selected.and_then(|at| entry.variants.get(at)).filter(|_| entry.variants.len() > 1) {
            stored.meta.note_use(self.ordinals.load(Ordering::Relaxed));
        }
        Found { selected, entry }
    }

    /// Selects the newest matching response, preferring one with `Vary`: one without may be the default, which the origin
    /// sends without saying so (RFC 9111 §4.1).
    fn select(&self, key: &Key, entry: &Entry, request: &HeaderMap, implicit_key: &str) -> Option<usize> {
        // Most variants vary by the same fields.
        let mut last: Option<(&Vary, Selection)> = None;
        let mut newest = None;
        for (at, stored) in entry.variants.iter().enumerate() {
            let secondary_key = &stored.meta.secondary_key;
            if &*secondary_key.implicit_key != implicit_key {
                continue;
            }
            let same = last.take().filter(|(vary, _)| **vary == secondary_key.vary);
            let (_, selection) =
                last.insert(same.unwrap_or_else(|| (&secondary_key.vary, secondary_key.vary.select(request))));
            let matches = secondary_key.matches(&stored.meta.headers, request, selection);
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

    /// Returns `true` if no group of the response was invalidated since its request. Soft purges do not count.
    fn is_selectable(&self, key: &Key, stored: &Stored) -> bool {
        is_newer(&self.groups, key, &stored.meta.groups, stored.meta.began)
    }

    /// Returns `true` if no group of the response was invalidated or purged since its request.
    pub(crate) fn is_valid(&self, key: &Key, stored: &Stored) -> bool {
        self.are_valid(key, &stored.meta.groups, stored.meta.began)
    }

    /// Returns `true` if none of these groups of a URI's origin was invalidated or purged since a request with this
    /// ordinal.
    pub(crate) fn are_valid(&self, key: &Key, groups: &[Box<str>], began: u64) -> bool {
        [&self.groups, &self.soft_groups].iter().all(|known| is_newer(known, key, groups, began))
    }

    /// Stores a response, unless its URI was invalidated since its request. `merge` receives the response stored for the
    /// same requests, and returns the one to store.
    pub(crate) fn store(&self, key: &Key, new: Stored, merge: impl FnOnce(&Stored, Stored) -> Stored) -> bool {
        let hash = self.hash(key);
        let shard = self.shard(hash);
        let is_newest = is_newer(&self.soft_groups, key, &new.meta.groups, new.meta.began);
        if !is_newest || new.meta.began < self.last_invalidation_in(&shard, hash, key) {
            return false;
        }
        let entry = self.memory.peek(key).unwrap_or_default();
        let new = match entry.variants.iter().find(|old| old.is_for_the_same(&new)) {
            Some(old) => merge(old, new),
            None => new,
        };
        let gone = entry.with(new, self.memory.largest()).map(|next| self.memory.insert(key, next));
        drop(shard);
        gone.is_some()
    }

    /// Removes one stored response.
    pub(crate) fn discard(&self, key: &Key, old: &Stored) {
        drop(self.change(key, |entry| entry?.without(old)));
    }

    /// Notes that responses for the URI are not expected to be storable.
    pub(crate) fn expect_unshared(&self, key: &Key, until: Timestamp) {
        drop(self.change(key, |entry| {
            Some(Arc::new(Entry { unshared_until: until, ..entry.cloned().unwrap_or_default() }))
        }));
    }

    /// Notes that responses to requests with credentials are not expected to be storable.
    pub(crate) fn expect_personal(&self, key: &Key, until: Timestamp) {
        drop(self.change(key, |entry| {
            Some(Arc::new(Entry { personal_until: until, ..entry.cloned().unwrap_or_default() }))
        }));
    }

    /// Notes that the origin fails for a URI with stored responses, or with `None` that it has recovered.
    pub(crate) fn note_failure(&self, key: &Key, failing: Option<Failing>) {
        drop(self.change(key, |entry| {
            let known = entry.filter(|entry| entry.failing != failing)?;
            Some(Arc::new(Entry { failing, ..known.clone() }))
        }));
    }

    /// Replaces the entry of a URI.
    fn change(&self, key: &Key, make: impl FnOnce(Option<&Entry>) -> Option<Arc<Entry>>) -> Option<Gone> {
        let _shard = self.shard(self.hash(key));
        let known = self.memory.peek(key);
        make(known.as_deref()).map(|next| self.memory.insert(key, next))
    }

    /// Removes all responses stored for a URI, and keeps pending ones from being stored.
    pub(crate) fn invalidate(&self, key: &Key) -> Invalidated {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let (before, ordinal) = (self.last_invalidation_in(&shard, hash, key), self.next_ordinal());
        shard.add(hash, ordinal);
        let removed = self.memory.remove(key);
        drop(shard);
        Invalidated { found: removed.is_some_and(|entry| !entry.variants.is_empty()), before, ordinal }
    }

    /// Does the same for all URIs with this prefix. Returns the number of URIs that had stored responses.
    pub(crate) fn invalidate_prefix(&self, prefix: &str) -> usize {
        self.prefixes.add(prefix, || self.next_ordinal());
        self.wait_for_writers();
        let remove = |key: &Key| {
            // A writer that holds the lock now may put back the old entry.
            let _shard = self.shard(self.hash(key));
            self.memory.remove(key)
        };
        let removed = self.memory.keys(prefix).into_iter().filter_map(|key| remove(&key));
        removed.filter(|entry| !entry.variants.is_empty()).count()
    }

    /// Waits for the writers that may have read the prefixes or groups before an invalidation: once its lock is free, such
    /// a writer has stored its response.
    fn wait_for_writers(&self) {
        self.shards.iter().for_each(|shard| drop(lock(shard)));
    }

    /// Makes all responses stored for a URI stale, and keeps pending ones from being stored. Returns `true` if any changed.
    pub(crate) fn soft_purge(&self, key: &Key, now: Timestamp) -> bool {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        shard.add(hash, self.next_ordinal());
        let purged = self.memory.peek(key).and_then(|entry| entry.purged(now, |_| true));
        let gone = purged.map(|next| self.memory.insert(key, next));
        drop(shard);
        gone.is_some()
    }

    /// Does the same for all URIs with this prefix. Returns the number of URIs changed.
    pub(crate) fn soft_purge_prefix(&self, prefix: &str, now: Timestamp) -> usize {
        let ordinal = self.prefixes.add(prefix, || self.next_ordinal());
        self.wait_for_writers();
        self.soft_purge_some(&self.memory.keys(prefix), now, |meta| meta.began < ordinal)
    }

    /// Does the same for all responses of an origin in a group. Returns the number of URIs changed.
    pub(crate) fn soft_purge_group(&self, origin: &str, name: &str, now: Timestamp) -> usize {
        let ordinal = self.soft_groups.add(origin, name, || self.next_ordinal());
        self.wait_for_writers();
        let is_member = |meta: &Meta| meta.began < ordinal && meta.groups.iter().any(|group| **group == *name);
        let mut keys = self.memory.keys(origin);
        keys.retain(|key| key.origin() == origin);
        self.soft_purge_some(&keys, now, is_member)
    }

    fn soft_purge_some(&self, keys: &[Key], now: Timestamp, is_purged: impl Fn(&Meta) -> bool) -> usize {
        let purge = |key: &&Key| self.change(key, |entry| entry?.purged(now, &is_purged)).is_some();
        keys.iter().filter(purge).count()
    }

    /// Invalidates all responses of an origin in a group. They stay in memory until a [sweep](Self::sweep).
    pub(crate) fn invalidate_group(&self, origin: &str, name: &str) {
        self.groups.add(origin, name, || self.next_ordinal());
    }

    /// Removes an origin's responses in invalidated groups. Returns the number of URIs changed.
    pub(crate) fn sweep(&self, origin: &str) -> usize {
        let sweep = |key: &Key| {
            self.change(key, |entry| {
                let entry =
                    entry.filter(|entry| entry.variants.iter().any(|stored| !self.is_selectable(key, stored)))?;
                let valid = entry.variants.iter().filter(|stored| self.is_selectable(key, stored)).cloned().collect();
                Some(Arc::new(Entry { unshared_until: entry.unshared_until, ..Entry::of(valid) }))
            })
        };
        let keys = self.memory.keys(origin).into_iter().filter(|key| key.origin() == origin);
        keys.filter_map(|key| sweep(&key)).count()
    }

    /// Returns the ordinal of the last invalidation that may have included this key. Groups do not count.
    pub(crate) fn last_invalidation(&self, key: &Key) -> u64 {
        let hash = self.hash(key);
        self.last_invalidation_in(&self.shard(hash), hash, key)
    }

    fn last_invalidation_in(&self, shard: &KeyInvalidations, hash: u64, key: &Key) -> u64 {
        shard.last(hash).max(self.prefixes.last(key.as_str()))
    }

    /// Locks the shard of a key with this hash.
    fn shard(&self, hash: u64) -> MutexGuard<'_, KeyInvalidations> {
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[at])
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }
}

/// Returns `true` if none of these groups of a URI's origin was invalidated since a request with this ordinal.
fn is_newer(invalidations: &GroupInvalidations, key: &Key, groups: &[Box<str>], began: u64) -> bool {
    groups.is_empty() || invalidations.last(key.origin(), groups) < began
}

fn lock(shard: &Mutex<KeyInvalidations>) -> MutexGuard<'_, KeyInvalidations> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use http::header::{ACCEPT_LANGUAGE, VARY};
    use http::{HeaderValue, StatusCode};

    use super::*;
    use crate::body::in_memory::MemoryBody;
    use crate::store::stored_response::{Arrival, StoredBody};

    fn asking_for(language: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))])
    }

    /// Returns a response for requests with this language.
    fn stored(began: u64, language: &'static str) -> Stored {
        let arrival = Arrival {
            request: &asking_for(language),
            implicit_key: "",
            began,
            requested: Timestamp::default(),
            received: Timestamp::default(),
            heuristic: None,
            while_revalidate: Duration::ZERO,
            unstored: &[],
            always_validate: false,
        };
        let response = HeaderMap::from_iter([(VARY, HeaderValue::from_static("accept-language"))]);
        let body = StoredBody::Whole(Arc::new(MemoryBody::default()));
        Stored { meta: Arc::new(Meta::new(StatusCode::OK, &response, &arrival)), body }
    }

    #[test]
    fn a_prefix_purge_leaves_other_prefixes_alone() {
        let table = Table::with_capacity(1 << 20, 1 << 16);
        let [inside, outside] = ["http://a.example/x/1", "http://a.example/y/1"].map(|url| Key::parse(url).remove(0));
        let began = table.next_ordinal();
        assert_eq!(table.invalidate_prefix("http://a.example/x/"), 0);
        assert!(!table.store(&inside, stored(began, "de"), |_, new| new));
        assert!(table.store(&outside, stored(began, "de"), |_, new| new));
        assert!(table.store(&inside, stored(table.next_ordinal(), "de"), |_, new| new));
        assert_eq!(table.invalidate_prefix("http://a.example/"), 2);
        assert!(!table.store(&outside, stored(began, "de"), |_, new| new));
    }

    #[test]
    fn a_sweep_frees_the_memory_of_a_group() {
        let table = Table::with_capacity(1 << 20, 1 << 16);
        let key = Key::parse("http://a.example/").remove(0);
        let mut grouped = stored(table.next_ordinal(), "de");
        Arc::get_mut(&mut grouped.meta).unwrap().groups = ["g".into()].into();
        table.store(&key, grouped, |_, new| new);
        table.store(&key, stored(table.next_ordinal(), "en"), |_, new| new);
        let before = table.memory.weight();
        table.invalidate_group("http://a.example", "g");
        assert_eq!((table.sweep("http://a.exampl"), table.sweep("http://a.example")), (0, 1));
        assert!(table.memory.weight() < before);
        assert_eq!(table.memory.peek(&key).unwrap().variants.len(), 1);
        assert_eq!(table.sweep("http://a.example"), 0);
    }

    #[test]
    fn a_requested_variant_outlives_others() {
        let table = Table::with_capacity(1 << 30, 1 << 20);
        let key = Key::parse("http://a.example/").remove(0);
        let asking =
            |language: &str| HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_str(language).unwrap())]);
        let found = |language: &str| table.find(&key, &asking(language), "").stored().is_some();
        table.store(&key, stored(table.next_ordinal(), "en"), |_, new| new);
        table.store(&key, stored(table.next_ordinal(), "de"), |_, new| new);
        for at in 0..1_000 {
            assert!(found("en"), "{at}");
            let language: &'static str = Box::leak(format!("x{at}").into());
            table.store(&key, stored(table.next_ordinal(), language), |_, new| new);
        }
        assert!(!found("de") && found("x999") && found("x900") && !found("x0"));
    }

    #[test]
    fn storing_during_a_purge_restores_nothing() {
        let table = Table::with_capacity(1 << 30, 1 << 20);
        let keys: Vec<Key> = (0..10_000).map(|at| Key::parse(&format!("http://a.example/{at}")).remove(0)).collect();
        for key in &keys {
            table.store(key, stored(table.next_ordinal(), "de"), |_, new| new);
        }
        let key = &keys[0];
        table.store(key, stored(table.next_ordinal(), "en"), |_, new| new);
        let purged = AtomicBool::new(false);
        let is_recorded = || table.prefixes.last(keys[0].as_str()) > 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                table.invalidate_prefix("http://a.example/");
                purged.store(true, Ordering::SeqCst);
            });
            while !is_recorded() {
                thread::yield_now();
            }
            // The purge may continue while this response is being stored.
            table.store(key, stored(table.next_ordinal(), "en"), |_, new| {
                (0..100).take_while(|_| !purged.load(Ordering::SeqCst)).for_each(|_| {
                    thread::sleep(Duration::from_millis(2));
                });
                new
            });
        });
        assert!(table.find(key, &asking_for("de"), "").stored().is_none());
    }
}
