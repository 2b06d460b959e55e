//! All that is stored or on its way, and the order of things: nothing that was asked for before an invalidation is
//! found after it.
//!
//! Requests to the origin and invalidations draw ordinals from one counter. A URI's shard remembers the ordinals of the last
//! invalidations of its URIs; a response to an earlier request is not stored any more. Comparing and storing are one step
//! under the shard's lock, and so are remembering and removing.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use ifmatch_core::date::Timestamp;

use crate::flight::{Flight, Pilot};
use crate::group_stamps::GroupStamps;
use crate::invalidations::Invalidations;
use crate::key::Key;
use crate::memory::{Entry, Memory};
use crate::policy::vary::{Selection, Vary};
use crate::stored::Stored;

const SHARDS: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) memory: Memory,
    groups: GroupStamps,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    ordinals: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    invalidations: Invalidations,
    flights: Vec<(Key, Course, Arc<Flight>)>,
}

impl Shard {
    fn flight(&self, key: &Key, course: &Course) -> Option<Arc<Flight>> {
        let mut flights = self.flights.iter();
        flights.find(|(other, way, _)| other == key && way == course).map(|(.., flight)| Arc::clone(flight))
    }

    fn depart(&mut self, key: &Key, course: &Course) -> Arc<Flight> {
        let flight = Flight::new();
        self.flights.push((key.clone(), course.clone(), Arc::clone(&flight)));
        flight
    }
}

/// What tells the requests for one URI apart, as far as that is known before the response has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    vary: Vary,
    by: Selection,
    implicit: Box<str>,
}

impl Course {
    pub(crate) fn new(vary: Vary, request: &HeaderMap, implicit: &str) -> Self {
        Self { by: vary.select(request), vary, implicit: implicit.into() }
    }
}

/// What is known of what a request asks for.
#[derive(Debug)]
pub(crate) struct Found {
    /// Which of the entry's responses it selects.
    selected: Option<usize>,
    /// All that is known of the URI.
    pub(crate) entry: Arc<Entry>,
    /// Whether responses are expected not to be storable.
    pub(crate) unshared: bool,
}

impl Found {
    /// The stored response that the request selects.
    pub(crate) fn stored(&self) -> Option<&Stored> {
        self.entry.variants.get(self.selected?)
    }

    /// Whom a request that has to ask the origin can join.
    pub(crate) fn course(&self, request: &HeaderMap, implicit: &str) -> Course {
        let vary = self.entry.variants.first().map(|stored| stored.meta.selected.vary.clone());
        Course::new(vary.unwrap_or_default(), request, implicit)
    }
}

/// What an invalidation was.
#[derive(Debug)]
pub(crate) struct Invalidated {
    /// Whether something was stored.
    pub(crate) found: bool,
    /// The ordinal of the last one before it that may have been of the same URI.
    pub(crate) before: u64,
    pub(crate) ordinal: u64,
}

/// The part that a request plays.
#[derive(Debug)]
pub(crate) enum Role {
    /// It asks the origin.
    Pilot(Pilot),
    /// It waits for another one.
    Passenger(Arc<Flight>),
}

impl Table {
    pub(crate) fn with_capacity(bytes: u64) -> Self {
        Self {
            memory: Memory::with_capacity(bytes),
            groups: GroupStamps::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            ordinals: AtomicU64::new(1),
        }
    }

    /// The ordinal of a request to the origin that begins now.
    pub(crate) fn begin(&self) -> u64 {
        self.ordinals.fetch_add(1, Ordering::SeqCst)
    }

    /// Looks up what a request selects.
    pub(crate) fn find(&self, key: &Key, request: &HeaderMap, implicit: &str, now: Timestamp) -> Found {
        let entry = self.memory.get(key).unwrap_or_default();
        let selected =
            |stored: &Stored| stored.is_there() && stored.is_selected(request, implicit) && self.is_valid(key, stored);
        let mut all = entry.variants.iter().enumerate().filter(|(_, stored)| selected(stored));
        let newest = all.next();
        // RFC 9111 §4.1: one without Vary may be the default that the origin has sent without saying so.
        let varying = newest.filter(|(_, stored)| stored.varies()).or_else(|| all.find(|(_, stored)| stored.varies()));
        let selected = varying.or(newest).map(|(at, _)| at);
        Found { unshared: now < entry.unshared_until, selected, entry }
    }

    /// Whether no group of the response was invalidated since it was asked for.
    pub(crate) fn is_valid(&self, key: &Key, stored: &Stored) -> bool {
        self.are_valid(key, &stored.meta.groups, stored.meta.began)
    }

    /// Whether none of these groups of a URI's origin was invalidated since a request of this ordinal.
    pub(crate) fn are_valid(&self, key: &Key, groups: &[Box<str>], began: u64) -> bool {
        groups.is_empty() || self.groups.last(key.origin(), groups) < began
    }

    /// Joins those who want the same, or becomes the first of them.
    pub(crate) fn board(self: &Arc<Self>, key: &Key, course: &Course) -> Role {
        let mut shard = self.shard(self.hash(key));
        if let Some(flight) = shard.flight(key, course) {
            return Role::Passenger(flight);
        }
        Role::Pilot(Pilot::new(self, key.clone(), shard.depart(key, course)))
    }

    /// Lets others join a request that began with this ordinal and went alone so far. None: another one is under way, or
    /// the URI was invalidated since.
    pub(crate) fn share(self: &Arc<Self>, key: &Key, course: &Course, began: u64) -> Option<Pilot> {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        if began < shard.invalidations.last(hash) || shard.flight(key, course).is_some() {
            return None;
        }
        Some(Pilot::new(self, key.clone(), shard.depart(key, course)))
    }

    /// The flight is over: who comes now does not join it.
    pub(crate) fn land(&self, key: &Key, flight: &Arc<Flight>) {
        self.shard(self.hash(key)).flights.retain(|(.., known)| !Arc::ptr_eq(known, flight));
    }

    /// Stores a response, unless the URI was invalidated since it was asked for. `merge` sees what is stored for the
    /// same requests, and makes the response to store of it.
    pub(crate) fn store(&self, key: &Key, new: Stored, merge: impl FnOnce(&Stored, Stored) -> Stored) -> bool {
        let hash = self.hash(key);
        let shard = self.shard(hash);
        if new.meta.began < shard.invalidations.last(hash) {
            return false;
        }
        let entry = self.memory.get(key).unwrap_or_default();
        let new = match entry.variants.iter().find(|old| old.is_for_the_same(&new)) {
            Some(old) => merge(old, new),
            None => new,
        };
        let next = entry.with(new);
        if let Some(next) = &next {
            self.memory.insert(key, Arc::clone(next));
        }
        drop(shard);
        next.is_some()
    }

    /// Removes one stored response.
    pub(crate) fn discard(&self, key: &Key, old: &Stored) {
        let _shard = self.shard(self.hash(key));
        if let Some(next) = self.memory.get(key).and_then(|entry| entry.without(old)) {
            self.memory.insert(key, next);
        }
    }

    /// Notes that responses for the URI are expected not to be storable.
    pub(crate) fn expect_unshared(&self, key: &Key, until: Timestamp) {
        let _shard = self.shard(self.hash(key));
        let entry = self.memory.get(key).unwrap_or_default();
        self.memory.insert(key, Arc::new(Entry { unshared_until: until, ..Entry::clone(&entry) }));
    }

    /// Removes all that is stored for a URI, and keeps what is on its way from being stored.
    pub(crate) fn invalidate(&self, key: &Key) -> Invalidated {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let (before, ordinal) = (shard.invalidations.last(hash), self.begin());
        shard.invalidations.add(hash, ordinal);
        shard.flights.retain(|(known, ..)| known != key);
        Invalidated { found: self.memory.remove(key), before, ordinal }
    }

    /// The same for all URIs that begin so. Tells how many were stored.
    pub(crate) fn invalidate_prefix(&self, prefix: &str) -> usize {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.invalidations.add_all(self.begin());
            shard.flights.retain(|(key, ..)| !key.as_str().starts_with(prefix));
        }
        let keys = self.memory.keys(prefix);
        let removed = keys.iter().filter(|key| {
            // Whoever stores something at this moment puts back what was there.
            let _shard = self.shard(self.hash(key));
            self.memory.remove(key)
        });
        removed.count()
    }

    /// The same for all responses of an origin that are in a group.
    pub(crate) fn invalidate_group(&self, origin: &str, name: &str) {
        self.groups.invalidate(origin, name, || self.begin());
    }

    /// The shard of the keys with this hash.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[at])
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
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
    use crate::content::Content;
    use crate::stored::{Body, Came, Meta};

    fn asking_for(language: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))])
    }

    /// What is stored for those who ask for this language.
    fn stored(began: u64, language: &'static str) -> Stored {
        let came = Came {
            request: &asking_for(language),
            implicit: "",
            began,
            requested: Timestamp::default(),
            received: Timestamp::default(),
            heuristic: None,
            unstored: &[],
            always_validate: false,
        };
        let response = HeaderMap::from_iter([(VARY, HeaderValue::from_static("accept-language"))]);
        let body = Body::Whole(Arc::new(Content::default()));
        Stored { meta: Arc::new(Meta::new(StatusCode::OK, &response, &came)), body }
    }

    #[test]
    fn who_stores_during_a_purge_brings_nothing_back() {
        let table = Table::with_capacity(1 << 30);
        let keys: Vec<Key> = (0..10_000).map(|at| Key::parse(&format!("http://a.example/{at}")).remove(0)).collect();
        for key in &keys {
            table.store(key, stored(table.begin(), "de"), |_, new| new);
        }
        let key = &keys[0];
        table.store(key, stored(table.begin(), "en"), |_, new| new);
        let purged = AtomicBool::new(false);
        let is_told = || lock(&table.shards[SHARDS - 1]).invalidations.last(0) > 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                table.invalidate_prefix("http://a.example/");
                purged.store(true, Ordering::SeqCst);
            });
            while !is_told() {
                thread::yield_now();
            }
            // From here on something is asked for, and comes: while it is stored, the purge goes on, if it can.
            table.store(key, stored(table.begin(), "en"), |_, new| {
                (0..100).take_while(|_| !purged.load(Ordering::SeqCst)).for_each(|_| {
                    thread::sleep(Duration::from_millis(2));
                });
                new
            });
        });
        assert!(table.find(key, &asking_for("de"), "", Timestamp::default()).stored().is_none());
    }
}
