//! Several handles of one register, used as if they were one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ifmatch_core::record::{Record, Revision};

use crate::key::Key;
use crate::register::{Engine, Register, RegisterError, Scan, Swap};

/// Passes each call to a different handle from the previous one. A check that writes, then reads, thus writes through
/// one handle and reads through another.
pub(super) struct Handles {
    handles: [Arc<dyn Register>; 2],
    calls: AtomicUsize,
}

impl Handles {
    pub(super) fn new(handles: [Arc<dyn Register>; 2]) -> Self {
        Self {
            handles,
            calls: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> &dyn Register {
        &*self.handles[self.calls.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Register for Handles {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.next().load(key).await
    }

    /// Describes the engine of one handle: the times of two may differ within their errors.
    fn engine(&self) -> Engine {
        self.handles[0].engine()
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
