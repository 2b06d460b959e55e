//! All that is stored or on its way, and the order of things: nothing that was asked for before an invalidation is
//! found after it.
//!
//! Requests to the origin and invalidations draw ordinals from one counter. A URI's shard remembers the ordinals of the last
//! invalidations of its URIs, and the table those of whole prefixes; a response to an earlier request is not stored any more.
//! Comparing and storing are one step under the shard's lock, and so are remembering and removing.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use ifmatch_core::date::Timestamp;

use crate::flight::{Flight, Pilot};
use crate::group_stamps::GroupStamps;
use crate::invalidations::Invalidations;
use crate::key::Key;
use crate::memory::{Entry, Failing, Gone, Memory};
use crate::policy::vary::{Selection, Vary};
use crate::prefix_stamps::PrefixStamps;
use crate::stored::Stored;

const SHARDS: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) memory: Memory,
    groups: GroupStamps,
    prefixes: PrefixStamps,
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
    /// The conditions that the origin is to evaluate.
    condition: Box<[u8]>,
}

impl Course {
    /// The course of requests for which the origin evaluates no condition.
    pub(crate) fn new(vary: Vary, request: &HeaderMap, implicit: &str) -> Self {
        Self { by: vary.select(request), vary, implicit: implicit.into(), condition: Box::default() }
    }

    /// The course of those for which it does.
    #[must_use]
    pub(crate) fn on(self, condition: Box<[u8]>) -> Self {
        Self { condition, ..self }
    }

    /// The course of a request that differs in what the response proves to vary by.
    pub(crate) fn varying(&self, vary: Vary, request: &HeaderMap) -> Self {
        Self { by: vary.select(request), vary, implicit: self.implicit.clone(), condition: self.condition.clone() }
    }
}

/// What is known of what a request asks for.
#[derive(Debug)]
pub(crate) struct Found {
    /// Which of the entry's responses it selects.
    selected: Option<usize>,
    /// All that is known of the URI.
    pub(crate) entry: Arc<Entry>,
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
    /// A table of so many bytes, for bodies of up to `longest`.
    pub(crate) fn with_capacity(bytes: u64, longest: u64) -> Self {
        Self {
            memory: Memory::with_capacity(bytes, longest),
            groups: GroupStamps::default(),
            prefixes: PrefixStamps::default(),
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
    pub(crate) fn find(&self, key: &Key, request: &HeaderMap, implicit: &str) -> Found {
        let entry = self.memory.get(key).unwrap_or_default();
        let selected = self.select(key, &entry, request, implicit);
        if let Some(stored) = selected.and_then(|at| entry.variants.get(at)).filter(|_| entry.variants.len() > 1) {
            stored.meta.note_use(self.ordinals.load(Ordering::Relaxed));
        }
        Found { selected, entry }
    }

    /// Which of the stored responses a request selects: the newest, but one with `Vary` before one without, which may be the
    /// default that the origin has sent without saying so (RFC 9111 §4.1).
    fn select(&self, key: &Key, entry: &Entry, request: &HeaderMap, implicit: &str) -> Option<usize> {
        let mut said: Option<(&Vary, Selection)> = None;
        let mut newest = None;
        for (at, stored) in entry.variants.iter().enumerate() {
            let selected = &stored.meta.selected;
            if &*selected.implicit != implicit {
                continue;
            }
            // Most variants vary by the same fields.
            let known = said.take().filter(|(vary, _)| **vary == selected.vary);
            let (_, by) = said.insert(known.unwrap_or_else(|| (&selected.vary, selected.vary.select(request))));
            let matches = selected.vary.matches(&selected.by, &stored.meta.headers, request, by);
            if !matches || !stored.is_there() || !self.is_valid(key, stored) {
                continue;
            }
            if stored.varies() {
                return Some(at);
            }
            newest = newest.or(Some(at));
        }
        newest
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
        if began < self.last_invalidation(&shard, hash, key) || shard.flight(key, course).is_some() {
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
        if new.meta.began < self.last_invalidation(&shard, hash, key) {
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

    /// Notes that responses for the URI are expected not to be storable.
    pub(crate) fn expect_unshared(&self, key: &Key, until: Timestamp) {
        drop(self.change(key, |entry| {
            Some(Arc::new(Entry { unshared_until: until, ..entry.cloned().unwrap_or_default() }))
        }));
    }

    /// Notes that responses to requests with credentials are expected not to be storable.
    pub(crate) fn expect_personal(&self, key: &Key, until: Timestamp) {
        drop(self.change(key, |entry| {
            Some(Arc::new(Entry { personal_until: until, ..entry.cloned().unwrap_or_default() }))
        }));
    }

    /// Notes that the origin fails for a URI of which something is stored, or, by None, that it does not any more.
    pub(crate) fn note_failure(&self, key: &Key, failing: Option<Failing>) {
        drop(self.change(key, |entry| {
            let known = entry.filter(|entry| entry.failing != failing)?;
            Some(Arc::new(Entry { failing, ..known.clone() }))
        }));
    }

    /// Puts another entry in the place of what is known of a URI.
    fn change(&self, key: &Key, make: impl FnOnce(Option<&Entry>) -> Option<Arc<Entry>>) -> Option<Gone> {
        let _shard = self.shard(self.hash(key));
        let known = self.memory.peek(key);
        make(known.as_deref()).map(|next| self.memory.insert(key, next))
    }

    /// Removes all that is stored for a URI, and keeps what is on its way from being stored.
    pub(crate) fn invalidate(&self, key: &Key) -> Invalidated {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        let (before, ordinal) = (self.last_invalidation(&shard, hash, key), self.begin());
        shard.invalidations.add(hash, ordinal);
        shard.flights.retain(|(known, ..)| known != key);
        let removed = self.memory.remove(key);
        drop(shard);
        Invalidated { found: removed.is_some_and(|entry| !entry.variants.is_empty()), before, ordinal }
    }

    /// The same for all URIs that begin so. Tells how many were stored.
    pub(crate) fn invalidate_prefix(&self, prefix: &str) -> usize {
        self.prefixes.invalidate(prefix, || self.begin());
        // Whoever has looked at the prefixes before that has stored once its shard can be had.
        for shard in &self.shards {
            lock(shard).flights.retain(|(key, ..)| !key.as_str().starts_with(prefix));
        }
        let remove = |key: &Key| {
            // Whoever stores something at this moment puts back what was there.
            let _shard = self.shard(self.hash(key));
            self.memory.remove(key)
        };
        let removed = self.memory.keys(prefix).into_iter().filter_map(|key| remove(&key));
        removed.filter(|entry| !entry.variants.is_empty()).count()
    }

    /// The same for all responses of an origin that are in a group.
    pub(crate) fn invalidate_group(&self, origin: &str, name: &str) {
        self.groups.invalidate(origin, name, || self.begin());
    }

    /// Removes what is stored for an origin and no longer valid, because of its groups. Tells of how many URIs.
    pub(crate) fn sweep(&self, origin: &str) -> usize {
        let sweep = |key: &Key| {
            self.change(key, |entry| {
                let entry = entry.filter(|entry| entry.variants.iter().any(|stored| !self.is_valid(key, stored)))?;
                let valid = entry.variants.iter().filter(|stored| self.is_valid(key, stored)).cloned().collect();
                Some(Arc::new(Entry { unshared_until: entry.unshared_until, ..Entry::of(valid) }))
            })
        };
        let keys = self.memory.keys(origin).into_iter().filter(|key| key.origin() == origin);
        keys.filter_map(|key| sweep(&key)).count()
    }

    /// The ordinal of the last invalidation that may have been of this key, whose hash and shard these are.
    fn last_invalidation(&self, shard: &Shard, hash: u64, key: &Key) -> u64 {
        shard.invalidations.last(hash).max(self.prefixes.last(key.as_str()))
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
    fn a_purge_of_a_prefix_concerns_no_other() {
        let table = Table::with_capacity(1 << 20, 1 << 16);
        let [inside, outside] = ["http://a.example/x/1", "http://a.example/y/1"].map(|url| Key::parse(url).remove(0));
        let began = table.begin();
        assert_eq!(table.invalidate_prefix("http://a.example/x/"), 0);
        assert!(!table.store(&inside, stored(began, "de"), |_, new| new));
        assert!(table.store(&outside, stored(began, "de"), |_, new| new));
        assert!(table.store(&inside, stored(table.begin(), "de"), |_, new| new));
        assert_eq!(table.invalidate_prefix("http://a.example/"), 2);
        assert!(!table.store(&outside, stored(began, "de"), |_, new| new));
    }

    #[test]
    fn a_sweep_frees_what_a_group_had() {
        let table = Table::with_capacity(1 << 20, 1 << 16);
        let key = Key::parse("http://a.example/").remove(0);
        let mut grouped = stored(table.begin(), "de");
        Arc::get_mut(&mut grouped.meta).unwrap().groups = ["g".into()].into();
        table.store(&key, grouped, |_, new| new);
        table.store(&key, stored(table.begin(), "en"), |_, new| new);
        let before = table.memory.weight();
        table.invalidate_group("http://a.example", "g");
        assert_eq!((table.sweep("http://a.exampl"), table.sweep("http://a.example")), (0, 1));
        assert!(table.memory.weight() < before);
        assert_eq!(table.memory.peek(&key).unwrap().variants.len(), 1);
        assert_eq!(table.sweep("http://a.example"), 0);
    }

    #[test]
    fn the_variant_that_is_asked_for_outlives_those_that_are_not() {
        let table = Table::with_capacity(1 << 30, 1 << 20);
        let key = Key::parse("http://a.example/").remove(0);
        let asking =
            |language: &str| HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_str(language).unwrap())]);
        let found = |language: &str| table.find(&key, &asking(language), "").stored().is_some();
        table.store(&key, stored(table.begin(), "en"), |_, new| new);
        table.store(&key, stored(table.begin(), "de"), |_, new| new);
        for at in 0..1_000 {
            assert!(found("en"), "{at}");
            let language: &'static str = Box::leak(format!("x{at}").into());
            table.store(&key, stored(table.begin(), language), |_, new| new);
        }
        assert!(!found("de") && found("x999") && found("x900") && !found("x0"));
    }

    #[test]
    fn who_stores_during_a_purge_brings_nothing_back() {
        let table = Table::with_capacity(1 << 30, 1 << 20);
        let keys: Vec<Key> = (0..10_000).map(|at| Key::parse(&format!("http://a.example/{at}")).remove(0)).collect();
        for key in &keys {
            table.store(key, stored(table.begin(), "de"), |_, new| new);
        }
        let key = &keys[0];
        table.store(key, stored(table.begin(), "en"), |_, new| new);
        let purged = AtomicBool::new(false);
        let is_told = || table.prefixes.last(keys[0].as_str()) > 0;
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
        assert!(table.find(key, &asking_for("de"), "").stored().is_none());
    }
}
