//! Several handles of one register, used as if they were one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};

use crate::engine_clock::EngineTime;
use crate::key::Key;
use crate::register::{Epoch, Guarantee, Register, RegisterError, Scan, Swap};

/// Passes each call to another handle than the call before. A check that writes, then reads, thus writes through one
/// handle and reads through another.
pub(super) struct Handles<R> {
    handles: [R; 2],
    calls: AtomicUsize,
}

impl<R> Handles<R> {
    pub(super) fn new(handles: [R; 2]) -> Self {
        Self { handles, calls: AtomicUsize::new(0) }
    }

    fn next(&self) -> &R {
        &self.handles[self.calls.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: Register> Register for Handles<R> {
    fn guarantee(&self) -> Guarantee {
        self.next().guarantee()
    }

    fn epoch(&self, key: &Key) -> Epoch {
        self.next().epoch(key)
    }

    /// Returns the time of one handle: those of two may differ within their errors.
    fn time(&self, key: &Key) -> Option<EngineTime> {
        self.handles[0].time(key)
    }

    fn clock_error(&self) -> Option<Duration> {
        self.handles[0].clock_error()
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.next().load(key).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.next().revision_at_once(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.next().compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.next().scan(scan).await
    }
}
