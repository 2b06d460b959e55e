//! Times of the last invalidations by URI prefix, kept while a response requested earlier may still arrive.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

/// Ordinals of the last invalidations.
#[derive(Debug, Default)]
pub(crate) struct PrefixStamps(RwLock<Stamps>);

#[derive(Debug, Default)]
struct Stamps {
    /// Prefixes and ordinals, oldest first.
    last: VecDeque<(Box<str>, u64)>,
    /// Ordinal of the latest dropped invalidation, which applies to all URIs.
    floor: u64,
}

impl PrefixStamps {
    /// Number of invalidations remembered. A request counts as invalidated by mistake only if more than these occur
    /// while it is in flight.
    const REMEMBERED: usize = 64;

    /// Invalidates a prefix. The ordinal is drawn under the lock.
    pub(crate) fn invalidate(&self, prefix: &str, ordinal: impl FnOnce() -> u64) {
        let mut stamps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let ordinal = ordinal();
        stamps.last.retain(|(known, _)| !known.starts_with(prefix));
        if stamps.last.len() == Self::REMEMBERED
            && let Some((_, oldest)) = stamps.last.pop_front()
        {
            stamps.floor = oldest;
        }
        stamps.last.push_back((prefix.into(), ordinal));
    }

    /// Returns the ordinal of the last invalidation that may have included this URI.
    pub(crate) fn last(&self, uri: &str) -> u64 {
        let stamps = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let newest = stamps.last.iter().rev().find(|(prefix, _)| uri.starts_with(&**prefix));
        newest.map_or(stamps.floor, |(_, ordinal)| *ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_told_apart() {
        let stamps = PrefixStamps::default();
        stamps.invalidate("http://a/", || 10);
        stamps.invalidate("http://b/", || 11);
        stamps.invalidate("http://a/x", || 12);
        assert_eq!(
            ["http://a/", "http://b/x", "http://a/xy", "http://c/"].map(|uri| stamps.last(uri)),
            [10, 11, 12, 0]
        );
        stamps.invalidate("", || 13);
        assert_eq!(["http://a/xy", "http://c/"].map(|uri| stamps.last(uri)), [13, 13]);
    }

    #[test]
    fn forgetting_invalidates_more_never_less() {
        let stamps = PrefixStamps::default();
        let most = PrefixStamps::REMEMBERED as u64;
        for at in 1..=most + 5 {
            stamps.invalidate(&format!("http://{at}.example/"), || 100 + at);
        }
        for at in 1..=most + 5 {
            let last = stamps.last(&format!("http://{at}.example/"));
            assert!(last >= 100 + at || at <= 5 && last == 105, "{at}: {last}");
        }
        assert_eq!(stamps.last("http://other.example/"), 105);
    }
}
