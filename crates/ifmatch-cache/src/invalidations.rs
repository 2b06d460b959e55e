//! When URIs were last invalidated, for as long as a response that was asked for before may still come.

use std::collections::VecDeque;

/// The last invalidations, each of one key, by the keys' hashes. Those before them are remembered as one, of every key:
/// forgetting may keep a response from being stored that could be, never the other way round.
#[derive(Debug, Default)]
pub(crate) struct Invalidations {
    /// Hashes and ordinals, the oldest first.
    last: VecDeque<(u64, u64)>,
    /// The ordinal of the newest that is not among these.
    floor: u64,
}

impl Invalidations {
    /// How many are told apart: a request is mistaken for invalidated by others only if so many come while it is under way.
    const REMEMBERED: usize = 32;

    /// The ordinal of the last one that may have been of this key.
    pub(crate) fn last(&self, hash: u64) -> u64 {
        self.last.iter().rev().find(|(known, _)| *known == hash).map_or(self.floor, |(_, ordinal)| *ordinal)
    }

    /// A key is invalidated.
    pub(crate) fn add(&mut self, hash: u64, ordinal: u64) {
        self.last.retain(|(known, _)| *known != hash);
        if self.last.len() == Self::REMEMBERED
            && let Some((_, oldest)) = self.last.pop_front()
        {
            self.floor = oldest;
        }
        self.last.push_back((hash, ordinal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let mut invalidations = Invalidations::default();
        invalidations.add(1, 10);
        invalidations.add(2, 11);
        invalidations.add(1, 12);
        assert_eq!([1, 2, 3].map(|hash| invalidations.last(hash)), [12, 11, 0]);
    }

    #[test]
    fn forgetting_invalidates_more_never_less() {
        let mut invalidations = Invalidations::default();
        let most = Invalidations::REMEMBERED as u64;
        for at in 1..=most + 5 {
            invalidations.add(at, 100 + at);
            assert!(invalidations.last.len() <= Invalidations::REMEMBERED);
        }
        for at in 1..=most + 5 {
            let last = invalidations.last(at);
            assert!(last >= 100 + at || at <= 5 && last == 105, "{at}: {last}");
        }
        assert_eq!(invalidations.last(1_000), 105);
    }

    #[test]
    fn one_key_again_and_again_makes_nothing_be_forgotten() {
        let mut invalidations = Invalidations::default();
        (1..1_000).for_each(|ordinal| invalidations.add(7, ordinal));
        assert_eq!((invalidations.last(7), invalidations.last(8)), (999, 0));
    }
}
