//! Locks that keep this process's other writers away from a key, from the grant of a permit until its handler has
//! ended.
//!
//! The register excludes writers by permits, which expire by the clock. A lock does not expire: while a handler of this
//! process runs, no other writer of this process gets a permit at its key. On WebAssembly there are only the permits
//! ([`KeyedLocks`]).

use ifmatch_runtime::{KeyedLocks, KeyedQueue};

use crate::key::Key;

#[derive(Debug, Default)]
pub(crate) struct KeyLocks(KeyedLocks<Key>);

impl KeyLocks {
    /// Locks a key. Returns `None` if it is locked.
    pub(crate) fn try_lock<'a>(&'a self, key: &Key, waiters: &'a KeyedQueue<Key>) -> Option<KeyLock<'a>> {
        self.0.lock(key).then(|| KeyLock { locks: self, waiters, key: key.clone() })
    }

    /// Returns `true` if a key is locked.
    pub(crate) fn is_locked(&self, key: &Key) -> bool {
        self.0.is_locked(key)
    }
}

/// Keeps this process's other writers away from a key. Returned with a permit by
/// [`Driver::begin`](crate::Driver::begin). Drop it when the handler has ended, not earlier.
#[derive(Debug)]
#[must_use = "the handler must run while the key is locked"]
pub struct KeyLock<'a> {
    locks: &'a KeyLocks,
    waiters: &'a KeyedQueue<Key>,
    key: Key,
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        self.locks.0.unlock(&self.key);
        self.waiters.wake(&self.key);
    }
}
