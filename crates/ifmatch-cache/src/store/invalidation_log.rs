//! Ordinals of the last invalidations, kept while a response requested earlier may still arrive.

use std::collections::{HashMap, VecDeque};
use std::sync::{PoisonError, RwLock};

/// A bounded log of invalidations, oldest first. Dropped entries are remembered as one that applies to everything:
/// forgetting may keep a response from being stored, but never lets an outdated one in.
#[derive(Debug)]
struct InvalidationLog<T> {
    last: VecDeque<(T, u64)>,
    /// Ordinal of the latest dropped invalidation.
    floor: u64,
}

impl<T> Default for InvalidationLog<T> {
    fn default() -> Self {
        Self {
            last: VecDeque::new(),
            floor: 0,
        }
    }
}

impl<T> InvalidationLog<T> {
    /// Adds an invalidation in place of those that it covers.
    fn add(&mut self, what: T, ordinal: u64, capacity: usize, is_covered: impl Fn(&T) -> bool) {
        self.last.retain(|(known, _)| !is_covered(known));
        if self.last.len() == capacity
            && let Some((_, oldest)) = self.last.pop_front()
        {
            self.floor = oldest;
        }
        self.last.push_back((what, ordinal));
    }

    /// Returns the ordinal of the last invalidation that may apply.
    fn last(&self, applies: impl Fn(&T) -> bool) -> u64 {
        let newest = self.last.iter().rev().find(|(known, _)| applies(known));
        newest.map_or(self.floor, |(_, ordinal)| *ordinal)
    }
}

/// Invalidations of single keys, identified by their hashes.
#[derive(Debug, Default)]
pub(crate) struct KeyInvalidations(InvalidationLog<u64>);

impl KeyInvalidations {
    /// Number of invalidations remembered. A request counts as invalidated by mistake only if more than these occur while
    /// it is in flight.
    const REMEMBERED: usize = 32;

    /// Returns the ordinal of the last invalidation that may have been of this key.
    pub(crate) fn last(&self, hash: u64) -> u64 {
        self.0.last(|known| *known == hash)
    }

    pub(crate) fn add(&mut self, hash: u64, ordinal: u64) {
        self.0
            .add(hash, ordinal, Self::REMEMBERED, |known| *known == hash);
    }
}

/// Invalidations of URI prefixes.
#[derive(Debug, Default)]
pub(crate) struct PrefixInvalidations(RwLock<InvalidationLog<Box<str>>>);

impl PrefixInvalidations {
    /// Number of invalidations remembered.
    const REMEMBERED: usize = 64;

    /// Adds an invalidation. Its ordinal is drawn under the lock, and returned.
    pub(crate) fn add(&self, prefix: &str, ordinal: impl FnOnce() -> u64) -> u64 {
        let mut log = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let ordinal = ordinal();
        log.add(prefix.into(), ordinal, Self::REMEMBERED, |known| {
            known.starts_with(prefix)
        });
        ordinal
    }

    /// Returns the ordinal of the last invalidation that may have included this URI.
    pub(crate) fn last(&self, uri: &str) -> u64 {
        let log = self.0.read().unwrap_or_else(PoisonError::into_inner);
        log.last(|prefix| uri.starts_with(&**prefix))
    }
}

/// Invalidations of cache groups (RFC 9875), by origin and name. Stored responses are compared when they are looked up.
#[derive(Debug, Default)]
pub(crate) struct GroupInvalidations(RwLock<GroupOrdinals>);

#[derive(Debug, Default)]
struct GroupOrdinals {
    /// Ordinals of the last invalidations, by origin and name.
    by_name: HashMap<(Box<str>, Box<str>), u64>,
    /// Ordinal of the latest dropped invalidation, which applies to all groups.
    floor: u64,
}

impl GroupInvalidations {
    /// Maximum number of groups remembered.
    const REMEMBERED: usize = 100_000;

    /// Adds an invalidation. Its ordinal is drawn under the lock, and returned.
    pub(crate) fn add(&self, origin: &str, name: &str, ordinal: impl FnOnce() -> u64) -> u64 {
        let mut groups = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let ordinal = ordinal();
        if groups.by_name.len() >= Self::REMEMBERED {
            groups.by_name.clear();
            groups.floor = ordinal;
        }
        groups.by_name.insert((origin.into(), name.into()), ordinal);
        ordinal
    }

    /// Returns the ordinal of the last invalidation of any of these groups.
    pub(crate) fn last(&self, origin: &str, names: &[Box<str>]) -> u64 {
        let groups = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &str| groups.by_name.get(&(origin.into(), name.into())).copied();
        names
            .iter()
            .filter_map(|name| of(name))
            .max()
            .unwrap_or_default()
            .max(groups.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinguished() {
        let mut invalidations = KeyInvalidations::default();
        invalidations.add(1, 10);
        invalidations.add(2, 11);
        invalidations.add(1, 12);
        assert_eq!([1, 2, 3].map(|hash| invalidations.last(hash)), [12, 11, 0]);
    }

    #[test]
    fn forgetting_a_key_invalidates_more_never_less() {
        let mut invalidations = KeyInvalidations::default();
        let most = KeyInvalidations::REMEMBERED as u64;
        for at in 1..=most + 5 {
            invalidations.add(at, 100 + at);
            assert!(invalidations.0.last.len() <= KeyInvalidations::REMEMBERED);
        }
        for at in 1..=most + 5 {
            let last = invalidations.last(at);
            assert!(last >= 100 + at || at <= 5 && last == 105, "{at}: {last}");
        }
        assert_eq!(invalidations.last(1_000), 105);
    }

    #[test]
    fn repeated_invalidations_of_one_key_evict_no_other() {
        let mut invalidations = KeyInvalidations::default();
        (1..1_000).for_each(|ordinal| invalidations.add(7, ordinal));
        assert_eq!((invalidations.last(7), invalidations.last(8)), (999, 0));
    }

    #[test]
    fn prefixes_are_distinguished() {
        let invalidations = PrefixInvalidations::default();
        invalidations.add("http://a/", || 10);
        invalidations.add("http://b/", || 11);
        invalidations.add("http://a/x", || 12);
        let last = |uri| invalidations.last(uri);
        assert_eq!(
            ["http://a/", "http://b/x", "http://a/xy", "http://c/"].map(last),
            [10, 11, 12, 0]
        );
        invalidations.add("", || 13);
        assert_eq!(["http://a/xy", "http://c/"].map(last), [13, 13]);
    }

    #[test]
    fn forgetting_a_prefix_invalidates_more_never_less() {
        let invalidations = PrefixInvalidations::default();
        let most = PrefixInvalidations::REMEMBERED as u64;
        for at in 1..=most + 5 {
            invalidations.add(&format!("http://{at}.example/"), || 100 + at);
        }
        for at in 1..=most + 5 {
            let last = invalidations.last(&format!("http://{at}.example/"));
            assert!(last >= 100 + at || at <= 5 && last == 105, "{at}: {last}");
        }
        assert_eq!(invalidations.last("http://other.example/"), 105);
    }

    #[test]
    fn groups_of_different_origins_are_different() {
        let invalidations = GroupInvalidations::default();
        invalidations.add("http://a", "x", || 7);
        assert_eq!(invalidations.last("http://a", &["y".into(), "x".into()]), 7);
        assert_eq!(invalidations.last("http://b", &["x".into()]), 0);
    }

    #[test]
    fn forgetting_a_group_invalidates_more_never_less() {
        let invalidations = GroupInvalidations::default();
        for ordinal in 1..=GroupInvalidations::REMEMBERED as u64 + 1 {
            invalidations.add("http://a", &ordinal.to_string(), || ordinal);
        }
        assert!(invalidations.last("http://a", &["1".into()]) >= 1);
        assert!(
            invalidations.last("http://a", &["never".into()])
                <= GroupInvalidations::REMEMBERED as u64 + 1
        );
    }
}
