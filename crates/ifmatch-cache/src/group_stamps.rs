//! When cache groups were last invalidated (RFC 9875). What is stored is not searched: it is compared when it is found.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// The most groups remembered.
const MAX_GROUPS: usize = 100_000;

/// Ordinals of the last invalidations.
#[derive(Debug, Default)]
pub(crate) struct GroupStamps(RwLock<Stamps>);

#[derive(Debug, Default)]
struct Stamps {
    by_name: HashMap<(Box<str>, Box<str>), u64>,
    /// Counts for all groups: so late something was invalidated that is not remembered any more.
    floor: u64,
}

impl GroupStamps {
    /// Invalidates a group of an origin. The ordinal is drawn when nobody can look.
    pub(crate) fn invalidate(&self, origin: &str, name: &str, ordinal: impl FnOnce() -> u64) {
        let mut stamps = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let ordinal = ordinal();
        if stamps.by_name.len() >= MAX_GROUPS {
            stamps.by_name.clear();
            stamps.floor = ordinal;
        }
        stamps.by_name.insert((origin.into(), name.into()), ordinal);
    }

    /// The ordinal of the last invalidation of any of these groups.
    pub(crate) fn last(&self, origin: &str, names: &[Box<str>]) -> u64 {
        let stamps = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &str| stamps.by_name.get(&(origin.into(), name.into())).copied();
        names.iter().filter_map(|name| of(name)).max().unwrap_or_default().max(stamps.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_different_origins_are_different() {
        let stamps = GroupStamps::default();
        stamps.invalidate("http://a", "x", || 7);
        assert_eq!(stamps.last("http://a", &["y".into(), "x".into()]), 7);
        assert_eq!(stamps.last("http://b", &["x".into()]), 0);
    }

    #[test]
    fn forgetting_invalidates_more_never_less() {
        let stamps = GroupStamps::default();
        for ordinal in 1..=MAX_GROUPS as u64 + 1 {
            stamps.invalidate("http://a", &ordinal.to_string(), || ordinal);
        }
        assert!(stamps.last("http://a", &["1".into()]) >= 1);
        assert!(stamps.last("http://a", &["never".into()]) <= MAX_GROUPS as u64 + 1);
    }
}
