//! The entry of one URI in the store.

use std::sync::Arc;

use ifmatch_core::date::Timestamp;

use crate::metrics::Outcome;
use crate::store::stored_response::{StoredHead, StoredResponse};

/// The stored responses of one URI, and the state of its origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheEntry {
    /// Newest first.
    pub(crate) variants: Vec<StoredResponse>,
    /// Time until which responses aren't expected to be storable, so no request should wait for another's response.
    /// By the interval clock.
    pub(crate) unshared_until: Timestamp,
    /// Like `unshared_until`, for responses to requests with credentials.
    pub(crate) personal_until: Timestamp,
    /// Why the latest response wasn't stored, if it wasn't.
    pub(crate) unstored: Option<Outcome>,
    /// Latest failure of the origin, if it hasn't recovered since.
    pub(crate) failing: Option<OriginFailure>,
    /// Approximate size in memory, in bytes.
    pub(crate) size: u64,
}

/// A failure of the origin for a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OriginFailure {
    /// Time until which the origin isn't asked again, by the interval clock.
    pub(crate) until: Timestamp,
    /// `true` if the origin was unreachable or gave no response.
    pub(crate) unreachable: bool,
}

impl CacheEntry {
    /// Maximum number of responses stored per URI. The least recently requested is evicted first.
    const MAX_VARIANTS: usize = 256;

    /// Returns the entry with a response added, replacing the one for the same requests. Evicts others to stay within
    /// `most` bytes. Returns `None` if the existing response is newer.
    pub(crate) fn with(&self, new: StoredResponse, most: u64) -> Option<Arc<Self>> {
        let same = |old: &StoredResponse| old.is_for_the_same(&new);
        if self
            .variants
            .iter()
            .any(|old| same(old) && old.meta.began > new.meta.began)
        {
            return None;
        }
        let mut variants = Vec::with_capacity(self.variants.len() + 1);
        variants.extend(self.variants.iter().filter(|old| !same(old)).cloned());
        let mut size: u64 = variants.iter().map(StoredResponse::size).sum::<u64>() + new.size();
        while variants.len() >= Self::MAX_VARIANTS || size > most && !variants.is_empty() {
            let oldest = variants
                .iter()
                .enumerate()
                .min_by_key(|(_, old)| old.meta.last_used())
                .map(|(at, _)| at);
            size -= variants.remove(oldest.unwrap_or_default()).size();
        }
        let newest = variants
            .iter()
            .position(|old| old.meta.began < new.meta.began)
            .unwrap_or(variants.len());
        variants.insert(newest, new);
        Some(Arc::new(Self {
            personal_until: self.personal_until,
            ..Self::of(variants)
        }))
    }

    /// Returns the entry without this response. Returns `None` if the response isn't in it.
    pub(crate) fn without(&self, old: &StoredResponse) -> Option<Arc<Self>> {
        let at = self
            .variants
            .iter()
            .position(|known| Arc::ptr_eq(&known.meta, &old.meta))?;
        let mut variants = self.variants.clone();
        variants.remove(at);
        let Self {
            unshared_until,
            personal_until,
            ..
        } = *self;
        Some(Arc::new(Self {
            unshared_until,
            personal_until,
            ..Self::of(variants)
        }))
    }

    /// Returns the entry after a soft purge of some of its responses. Returns `None` if nothing changes.
    pub(crate) fn purged(
        &self,
        now: Timestamp,
        is_purged: impl Fn(&StoredHead) -> bool,
    ) -> Option<Arc<Self>> {
        let purge = |stored: &StoredResponse| {
            let meta = Some(&stored.meta)
                .filter(|meta| is_purged(meta))?
                .purged(now)?;
            Some(StoredResponse {
                meta: Arc::new(meta),
                body: stored.body.clone(),
            })
        };
        let purged: Vec<_> = self.variants.iter().map(purge).collect();
        let changes = purged.iter().any(Option::is_some);
        let variants = purged
            .into_iter()
            .zip(&self.variants)
            .map(|(new, old)| new.unwrap_or_else(|| old.clone()));
        changes.then(|| {
            Arc::new(Self {
                variants: variants.collect(),
                ..self.clone()
            })
        })
    }

    /// Creates an entry from responses, newest first.
    pub(crate) fn of(variants: Vec<StoredResponse>) -> Self {
        let size =
            size_of::<Self>() as u64 + variants.iter().map(StoredResponse::size).sum::<u64>();
        Self {
            variants,
            size,
            ..Self::default()
        }
    }
}
