//! What is remembered of responses, so that a 304 needs no run of the inner service. Bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::request::Parts;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Revision, Variant};

pub(crate) use native::Memory;

use crate::variant::Vary;

mod native;

/// The representations of one resource.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    vary: Vary,
    known: Vec<Arc<Known>>,
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
    /// The header fields of a 304, the tag and the date left out.
    pub(crate) headers: HeaderMap,
    /// When its response was made, its age then taken off.
    pub(crate) born: Timestamp,
    /// Until when its response allows it to be used without asking the resource.
    pub(crate) fresh_until: Timestamp,
    /// When the register was last asked whether this is the current version.
    pub(crate) checked: AtomicU64,
}

impl Known {
    /// Notes that the register has confirmed the version by a question asked at `now`.
    pub(crate) fn confirm(&self, now: Timestamp) {
        self.checked.fetch_max(now.micros(), Ordering::AcqRel);
    }

    /// When the register was last asked.
    pub(crate) fn confirmed(&self) -> Timestamp {
        Timestamp::from_micros(self.checked.load(Ordering::Acquire))
    }

    /// Whether the same requests get the same 304 from both.
    pub(crate) fn answers_like(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.variant == other.variant
            && self.tag == other.tag
            && self.last_modified == other.last_modified
            && self.headers == other.headers
    }

    fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        size_of::<Self>() + self.variant.0.len() + self.tag.as_bytes().len() + headers
    }
}

impl Entry {
    /// The most representations remembered of one resource; the oldest goes first.
    const MAX_KNOWN: usize = 16;

    /// The representation that this request selects.
    pub(crate) fn find(&self, request: &Parts) -> Option<&Arc<Known>> {
        let variant = self.vary.select(request)?;
        self.known.iter().find(|known| known.variant == variant)
    }

    /// The entry with one more representation. Those that were selected by other header fields go.
    fn with(&self, vary: Vary, new: Known) -> Self {
        let same = |known: &&Arc<Known>| self.vary == vary && known.variant != new.variant;
        let mut known: Vec<_> = self.known.iter().filter(same).cloned().collect();
        if known.len() >= Self::MAX_KNOWN {
            known.remove(0);
        }
        known.push(Arc::new(new));
        Self { vary, known }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.known.iter().map(|known| known.size()).sum::<usize>()
    }
}
