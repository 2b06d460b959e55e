//! Writes to a container, against its deletion on the condition that it is empty.
//!
//! A write looks up its container, and then swaps the record of its blob. In between, a deletion could find the container empty, and
//! delete it with the blob. The deletion therefore waits for the writes that have entered the container, and later writes wait for the
//! deletion. Only this process writes to the store, so a lock in memory is enough, and a crash leaves nothing behind.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use ifmatch_blob::name::ContainerName;

/// Number of locks. A write also waits for the deletion of another container with the same lock.
const LOCKS: usize = 64;

/// A lock for each container. Some containers share one.
pub(super) struct Gates([RwLock<()>; LOCKS]);

impl Default for Gates {
    fn default() -> Self {
        Self([const { RwLock::const_new(()) }; LOCKS])
    }
}

impl Gates {
    /// Lets a write enter the container, until the result is dropped.
    pub(super) async fn enter(&self, container: &ContainerName) -> RwLockReadGuard<'_, ()> {
        self.of(container).read().await
    }

    /// Waits until no write is in the container, and keeps others out until the result is dropped.
    pub(super) async fn close(&self, container: &ContainerName) -> RwLockWriteGuard<'_, ()> {
        self.of(container).write().await
    }

    fn of(&self, container: &ContainerName) -> &RwLock<()> {
        let mut hasher = DefaultHasher::new();
        container.hash(&mut hasher);
        &self.0[usize::try_from(hasher.finish()).unwrap_or_default() % LOCKS]
    }
}
