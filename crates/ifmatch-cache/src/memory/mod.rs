//! Where stored responses are kept: by URI, bounded by bytes.

use std::sync::Arc;

use ifmatch_core::date::Timestamp;

pub(crate) use native::Memory;

use crate::stored::Stored;

mod native;

/// What is known of one URI.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The stored responses, the newest first.
    pub(crate) variants: Vec<Stored>,
    /// Until then the origin's responses are expected not to be storable, so that nobody should wait for another's.
    pub(crate) unshared_until: Timestamp,
}

impl Entry {
    /// The most responses stored for one URI; the oldest goes first.
    const MAX_VARIANTS: usize = 32;

    /// The entry with one more response, in the place of the one for the same requests. None: that one is newer.
    pub(crate) fn with(&self, new: Stored) -> Option<Arc<Self>> {
        let same = |old: &Stored| old.is_for_the_same(&new);
        if self.variants.iter().any(|old| same(old) && old.meta.began > new.meta.began) {
            return None;
        }
        let mut variants = Vec::with_capacity(self.variants.len() + 1);
        variants.extend(self.variants.iter().filter(|old| !same(old)).cloned());
        variants.truncate(Self::MAX_VARIANTS - 1);
        let newest = variants.iter().position(|old| old.meta.began < new.meta.began).unwrap_or(variants.len());
        variants.insert(newest, new);
        Some(Arc::new(Self { variants, unshared_until: Timestamp::default() }))
    }

    /// The entry without this response. None: it is not there.
    pub(crate) fn without(&self, old: &Stored) -> Option<Arc<Self>> {
        let at = self.variants.iter().position(|known| Arc::ptr_eq(&known.meta, &old.meta))?;
        let mut entry = self.clone();
        entry.variants.remove(at);
        Some(Arc::new(entry))
    }

    /// The bytes of memory it takes, about.
    fn size(&self) -> u64 {
        size_of::<Self>() as u64 + self.variants.iter().map(Stored::size).sum::<u64>()
    }
}
