//! The objects that count as blobs, and recent answers of the register about them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Revision;

use super::attributes::Current;
use ifmatch_blob::name::ContainerName;

/// Maximum number of containers remembered.
const CAPACITY: usize = 1_000;

/// The objects in a container's folder that are its blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Members(Option<Revision>);

impl Members {
    /// Objects of this incarnation and later ones.
    pub(super) fn since(oldest: Revision) -> Self {
        Self(Some(oldest))
    }

    /// No objects: the container is being deleted.
    pub(super) const NONE: Self = Self(None);

    /// All objects.
    pub(super) const ALL: Self = Self(Some(Revision::NONE));

    /// Returns `true` if an object is a blob of the container. Objects without an incarnation are: another program
    /// wrote them, or the store keeps no metadata.
    pub(super) fn contain(&self, object: &Current) -> bool {
        self.0.is_some() && object.incarnation.is_none_or(|incarnation| self.include(incarnation))
    }

    /// Returns `true` if objects of this incarnation are blobs of the container.
    pub(super) fn include(&self, incarnation: Revision) -> bool {
        self.0.is_some_and(|oldest| incarnation >= oldest)
    }

    /// Returns `true` if all objects are blobs.
    pub(super) fn are_all(&self) -> bool {
        *self == Self::ALL
    }
}

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
