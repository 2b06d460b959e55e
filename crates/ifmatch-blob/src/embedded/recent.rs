//! Short bodies that were read a while ago, in memory. A body never changes under its name, so that none of them is ever
//! out of date; and whoever reads one needs no thread that may wait for the disk.

use bytes::Bytes;
use moka::sync::Cache;

use super::folder::BodyName;

/// The most that is kept, in bytes.
const CAPACITY: u64 = 16 * 1024 * 1024;

/// Bodies in memory. Cheap to clone; all clones are the same memory.
#[derive(Clone, Debug)]
pub(super) struct RecentBodies(Cache<BodyName, Bytes>);

impl RecentBodies {
    pub(super) fn new() -> Self {
        let weigh = |_: &BodyName, body: &Bytes| u32::try_from(size_of::<BodyName>() + body.len()).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(CAPACITY).weigher(weigh).build())
    }

    pub(super) fn get(&self, name: &BodyName) -> Option<Bytes> {
        self.0.get(name)
    }

    pub(super) fn keep(&self, name: BodyName, body: Bytes) {
        self.0.insert(name, body);
    }
}
