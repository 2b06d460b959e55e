//! The places of this process's writers: one at each key, from the grant of its permit until its handler has ended.
//!
//! The register keeps writers apart by permits, and a permit ends by the clock. A place does not: while a handler of
//! this process runs, no other writer of this process gets a permit at its key, regardless of the clock.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::key::Key;
use crate::platform::Turns;

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashSet<Key>>);

impl Places {
    /// Takes the place at a key. Returns `None` if another writer holds it.
    pub(crate) fn take<'a>(&'a self, key: &Key, turns: &'a Turns) -> Option<Place<'a>> {
        self.lock().insert(key.clone()).then(|| Place { places: self, turns, key: key.clone() })
    }

    /// Returns `true` if a writer holds the place at a key.
    pub(crate) fn is_taken(&self, key: &Key) -> bool {
        self.lock().contains(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of this process's only writer at a key, returned with a permit ([`Driver::begin`](crate::Driver::begin)).
/// Drop it once the handler has ended, and not before.
#[derive(Debug)]
#[must_use = "the handler runs while the place is held"]
pub struct Place<'a> {
    places: &'a Places,
    turns: &'a Turns,
    key: Key,
}

impl Place<'_> {
    /// The key.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.lock().remove(&self.key);
        self.turns.ended(&self.key);
    }
}
