//! Recent answers of the register about the objects that count as blobs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;

use super::incarnation::Members;
use ifmatch_blob::name::ContainerName;

/// Maximum number of containers remembered.
const CAPACITY: usize = 1_000;

/// The register's answers about containers, for as long as reads may reuse them.
pub(super) struct MemberCache {
    lasts: Duration,
    said: Mutex<HashMap<ContainerName, (Members, Timestamp)>>,
}

impl MemberCache {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { lasts, said: Mutex::default() }
    }

    /// Drops the answer about a container.
    pub(super) fn drop(&self, container: &ContainerName) {
        self.said().remove(container);
    }

    pub(super) fn get(&self, container: &ContainerName, now: Timestamp) -> Option<Members> {
        let (members, at) = *self.said().get(container)?;
        (now < at.saturating_add(self.lasts)).then_some(members)
    }

    /// Stores an answer, unless the next creation would invalidate it.
    pub(super) fn keep(&self, container: &ContainerName, members: Members, now: Timestamp) {
        if self.lasts.is_zero() || members == Members::NONE {
            return;
        }
        let mut said = self.said();
        if said.len() >= CAPACITY {
            said.clear();
        }
        said.insert(container.clone(), (members, now));
    }

    fn said(&self) -> MutexGuard<'_, HashMap<ContainerName, (Members, Timestamp)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemberCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberCache").field("lasts", &self.lasts).finish_non_exhaustive()
    }
}
