//! Recently read bodies of files up to 128 KiB, in memory. A body never changes under its name, so an entry is never stale.
//! A read from memory needs no blocking thread.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::body_files::BodyName;

/// Maximum size of all bodies, in bytes.
const CAPACITY: u64 = 16 * 1024 * 1024;
/// Approximate size of a body, in bytes.
const USUAL_SIZE: u64 = 64 * 1024;

/// Bodies in memory. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub(super) struct SmallBodies(Arc<Cache<BodyName, Bytes, BySize>>);

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<BodyName, Bytes> for BySize {
    fn weight(&self, _: &BodyName, body: &Bytes) -> u64 {
        (size_of::<BodyName>() + body.len()) as u64
    }
}

impl SmallBodies {
    pub(super) fn new() -> Self {
        let bodies = usize::try_from(CAPACITY / USUAL_SIZE).unwrap_or(usize::MAX);
        Self(Arc::new(Cache::with_weighter(bodies, CAPACITY, BySize)))
    }

    pub(super) fn get(&self, name: &BodyName) -> Option<Bytes> {
        self.0.get(name)
    }

    pub(super) fn keep(&self, name: BodyName, body: Bytes) {
        self.0.insert(name, body);
    }
}
