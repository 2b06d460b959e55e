//! The remembered responses of one resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Revision, Variant};
use ifmatch_register::Key;

use crate::read::vary::VaryFields;

/// Size in memory of a header field without its text, in bytes.
const FIELD: usize = 128;
/// Size in memory of an entry's place in the cache, in bytes.
const PLACE: usize = 512;

/// The responses of one resource.
#[derive(Debug, Default)]
pub(crate) struct ResourceEntry {
    vary: VaryFields,
    responses: Vec<Arc<RememberedHead>>,
    /// In bytes.
    size: usize,
}

/// The head of a response, as much of it as a 304 needs.
#[derive(Debug)]
pub(crate) struct RememberedHead {
    pub(crate) variant: Variant,
    /// The generation of the version that the response represents.
    pub(crate) generation: Revision,
    /// The tag in the record.
    pub(crate) tag: EntityTag,
    /// The modification date of the version.
    pub(crate) last_modified: HttpDate,
    /// The modification date as a header value.
    pub(crate) date: HeaderValue,
    /// The header fields of a 304.
    pub(crate) headers: HeaderMap,
    /// The arrival of the response, less its age.
    pub(crate) born: Timestamp,
    /// The end of the response's freshness.
    pub(crate) fresh_until: Timestamp,
    /// The time of the last check against the register, in microseconds since 1970.
    pub(crate) checked: AtomicU64,
    /// A revision of the record with this version and no write in flight.
    pub(crate) settled: AtomicU64,
}

impl RememberedHead {
    /// Stores the result of a check: at `now` this was the version of the record, at this revision, with no write in
    /// flight.
    pub(crate) fn confirm(&self, now: Timestamp, settled: Revision) {
        self.checked.fetch_max(now.micros(), Ordering::AcqRel);
        self.settled.store(settled.get(), Ordering::Release);
    }

    /// Returns `true` if this is the version of the record at this revision, and `false` if that is unknown.
    pub(crate) fn is_current_at(&self, revision: Revision) -> bool {
        self.settled.load(Ordering::Acquire) == revision.get()
    }

    /// Returns the time of the last check against the register.
    pub(crate) fn checked_at(&self) -> Timestamp {
        Timestamp::from_micros(self.checked.load(Ordering::Acquire))
    }

    fn size(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + FIELD)
            .sum();
        size_of::<Self>() + self.variant.0.len() + self.tag.as_bytes().len() + headers
    }
}

impl ResourceEntry {
    /// Maximum number of responses remembered of one resource. The oldest is dropped first.
    const MAX_RESPONSES: usize = 16;

    /// Returns the response that a request with this query and these header fields selects.
    pub(crate) fn find(
        &self,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Option<&Arc<RememberedHead>> {
        let variant = self.vary.select(query, headers)?;
        self.responses
            .iter()
            .find(|response| response.variant == variant)
    }

    /// Adds a response. Drops responses that were selected by other header fields.
    pub(super) fn with(&self, vary: VaryFields, new: RememberedHead) -> Self {
        let is_kept =
            |response: &&Arc<RememberedHead>| self.vary == vary && response.variant != new.variant;
        let mut responses: Vec<_> = self.responses.iter().filter(is_kept).cloned().collect();
        if responses.len() >= Self::MAX_RESPONSES {
            responses.remove(0);
        }
        responses.push(Arc::new(new));
        let size = size_of::<Self>()
            + responses
                .iter()
                .map(|response| response.size())
                .sum::<usize>();
        Self {
            vary,
            responses,
            size,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self, key: &Key) -> u32 {
        u32::try_from(PLACE + key.as_str().len() + self.size).unwrap_or(u32::MAX)
    }
}
