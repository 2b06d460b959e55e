//! The name of a resource in a register.

use std::fmt;
use std::sync::Arc;

use ifmatch_runtime::{KeyedLocks, KeyedQueue};

/// A resource's name in a register: 1 to [`Key::MAX_LEN`] bytes of text without NUL. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The text is empty, too long, or contains NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key must be 1 to {} bytes of text without NUL", Key::MAX_LEN)]
pub struct InvalidKey;

impl Key {
    /// Maximum length of a key, in bytes. Every engine can index keys of this length.
    pub const MAX_LEN: usize = 2048;

    /// Creates a key.
    ///
    /// # Errors
    /// [`InvalidKey`] if the text is empty, longer than [`Key::MAX_LEN`], or contains NUL.
    ///
    /// ```
    /// use ifmatch_register::Key;
    /// assert_eq!(Key::new("photos/cat.png").unwrap().as_str(), "photos/cat.png");
    /// assert!(Key::new("").is_err());
    /// ```
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidKey> {
        let text = text.into();
        let valid = !text.is_empty() && text.len() <= Self::MAX_LEN && !text.contains('\0');
        if valid {
            Ok(Self(text))
        } else {
            Err(InvalidKey)
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The locks of this process's writers.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks(KeyedLocks<Key>);

impl KeyLocks {
    /// Locks a key. Returns `None` if it is locked.
    pub(crate) fn try_lock<'a>(
        &'a self,
        key: &Key,
        waiters: &'a KeyedQueue<Key>,
    ) -> Option<KeyLock<'a>> {
        self.0.lock(key).then(|| KeyLock {
            locks: self,
            waiters,
            key: key.clone(),
        })
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
