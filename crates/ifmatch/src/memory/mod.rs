//! What is remembered of responses, so that a 304 needs no run of the inner service. Bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Revision, Variant};

use ifmatch_register::Key;

use crate::read::vary::Vary;

pub(crate) use imp::Memory;

#[cfg_attr(not(all(target_family = "wasm", target_os = "unknown")), path = "moka.rs")]
#[cfg_attr(all(target_family = "wasm", target_os = "unknown"), path = "quick_cache.rs")]
mod imp;

/// The memory on WebAssembly, tested natively too.
#[cfg(test)]
#[path = "quick_cache.rs"]
mod quick_cache;
#[cfg(test)]
mod tests;

/// The representations of one resource.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    vary: Vary,
    known: Vec<Arc<Known>>,
    /// In bytes.
    size: usize,
}

/// One representation.
#[derive(Debug)]
pub(crate) struct Known {
    /// What selects it.
    pub(crate) variant: Variant,
    /// The version that it represents.
    pub(crate) generation: Revision,
    /// Its tag, as the record has it.
    pub(crate) tag: EntityTag,
    /// Its version's modification date.
    pub(crate) last_modified: HttpDate,
    /// The same as a header field has it.
    pub(crate) date: HeaderValue,
    /// The header fields of a 304.
    pub(crate) headers: HeaderMap,
    /// When its response was made, its age then taken off.
    pub(crate) born: Timestamp,
    /// Until when its response allows it to be used without asking the resource.
    pub(crate) fresh_until: Timestamp,
    /// When the register was last asked whether this is the current version.
    pub(crate) checked: AtomicU64,
    /// A revision of the record at which this was the version, and no write in flight.
    pub(crate) settled: AtomicU64,
}

impl Known {
    /// Notes what the register said when it was asked at `now`: the record has this revision, in which this is the
    /// version, and no write is in flight.
    pub(crate) fn confirm(&self, now: Timestamp, settled: Revision) {
        self.checked.fetch_max(now.micros(), Ordering::AcqRel);
        self.settled.store(settled.get(), Ordering::Release);
    }

    /// Whether this is the current version as long as the record has this revision. False: the record will tell.
    pub(crate) fn is_settled_at(&self, revision: Revision) -> bool {
        self.settled.load(Ordering::Acquire) == revision.get()
    }

    /// When the register was last asked.
    pub(crate) fn confirmed(&self) -> Timestamp {
        Timestamp::from_micros(self.checked.load(Ordering::Acquire))
    }

    fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        size_of::<Self>() + self.variant.0.len() + self.tag.as_bytes().len() + headers
    }
}

impl Entry {
    /// The most representations remembered of one resource; the oldest goes first.
    const MAX_KNOWN: usize = 16;

    /// The representation that a request with this query and these header fields selects.
    pub(crate) fn find(&self, query: Option<&str>, headers: &HeaderMap) -> Option<&Arc<Known>> {
        let variant = self.vary.select(query, headers)?;
        self.known.iter().find(|known| known.variant == variant)
    }

    /// The entry with one more representation. Those that were selected by other header fields go.
    pub(crate) fn with(&self, vary: Vary, new: Known) -> Self {
        let same = |known: &&Arc<Known>| self.vary == vary && known.variant != new.variant;
        let mut known: Vec<_> = self.known.iter().filter(same).cloned().collect();
        if known.len() >= Self::MAX_KNOWN {
            known.remove(0);
        }
        known.push(Arc::new(new));
        let size = size_of::<Self>() + known.iter().map(|known| known.size()).sum::<usize>();
        Self { vary, known, size }
    }
}

/// The bytes that an entry takes, about.
pub(crate) fn weight(key: &Key, entry: &Entry) -> u32 {
    u32::try_from(size_of::<Key>() + key.as_str().len() + entry.size).unwrap_or(u32::MAX)
}
