//! Unacknowledged swaps, and what became of them.

use ifmatch_core::record::{Record, Revision};

use crate::driver::{DriverError, Effect};
use crate::metrics;
use crate::register::RegisterError;

/// How an ambiguous swap turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Its record was found.
    Done,
    /// Another swap took place at the revision that it expected.
    NotDone,
    /// The caller gets the ambiguous error.
    Unknown,
}

/// The ambiguous swaps of one command, or of one group. Any of them may have taken place.
#[derive(Debug)]
pub(crate) struct Ambiguous<E> {
    /// With the revision that each expected.
    swaps: Vec<(Revision, E)>,
    error: Option<RegisterError>,
}

impl<E> Default for Ambiguous<E> {
    fn default() -> Self {
        Self {
            swaps: Vec::new(),
            error: None,
        }
    }
}

impl<E: Effect> Ambiguous<E> {
    pub(crate) fn add(&mut self, expected: Revision, swap: E, error: RegisterError) {
        self.swaps.push((expected, swap));
        self.error = Some(error);
    }

    /// Finds the swap that produced a record. Records of different writers differ by their nonces.
    pub(crate) fn find(&mut self, stored: Option<&Record>) -> Option<E> {
        let found = self
            .swaps
            .iter()
            .position(|(_, swap)| swap.next() == stored)?;
        metrics::ambiguous(Resolution::Done);
        Some(self.swaps.swap_remove(found).1)
    }

    /// Returns the swaps that weren't found, each with the revision that it expected.
    pub(crate) fn swaps(&self) -> &[(Revision, E)] {
        &self.swaps
    }

    /// Returns the number of swaps that weren't found.
    pub(crate) fn count(&self) -> usize {
        self.swaps.len()
    }

    /// Takes the error of the last swap.
    pub(crate) fn take_error(&mut self) -> Option<RegisterError> {
        self.error.take()
    }

    /// Records what became of the swaps that weren't found, by the success of the command.
    pub(crate) fn resolve(&self, success: bool) {
        for _ in &self.swaps {
            metrics::ambiguous(if success {
                Resolution::NotDone
            } else {
                Resolution::Unknown
            });
        }
    }

    /// Returns `true` if other writers have changed the record since. The swap may have preceded theirs: running the
    /// command again could repeat its effect, and a refusal could deny it.
    pub(crate) fn overtaken(&self, revision: Revision) -> bool {
        self.swaps.iter().any(|(expected, _)| *expected != revision)
    }

    /// Returns the ambiguous error if there is one, otherwise the given error, which states that nothing was changed.
    pub(crate) fn or(&mut self, error: DriverError) -> DriverError {
        self.error.take().map_or(error, DriverError::Register)
    }
}
