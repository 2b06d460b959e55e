//! Locks between the tasks of this process.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks between the tasks of this process, one for each key. In JavaScript runtimes they exclude nothing: workerd neither
/// finishes nor drops the futures of a request that it ends, so their locks would stay.
///
/// ```
/// use ifmatch_runtime::KeyedLocks;
///
/// let locks = KeyedLocks::default();
/// assert!(locks.lock(&"key") && !locks.lock(&"key"));
/// locks.unlock(&"key");
/// assert!(!locks.is_locked(&"key"));
/// ```
#[derive(Debug)]
pub struct KeyedLocks<K: Eq + Hash>(Mutex<HashSet<K>>);

impl<K: Clone + Eq + Hash> KeyedLocks<K> {
    /// Locks a key. Returns `false` if it is locked.
    pub fn lock(&self, key: &K) -> bool {
        self.keys().insert(key.clone())
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Returns `true` if a key is locked.
    pub fn is_locked(&self, key: &K) -> bool {
        self.keys().contains(key)
    }

    /// Unlocks a key.
    pub fn unlock(&self, key: &K) {
        self.keys().remove(key);
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
