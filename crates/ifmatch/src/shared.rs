//! The state that all services of one layer share.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use ifmatch_core::command::{Authority, Command};
use ifmatch_core::date::Timestamp;
use ifmatch_register::{Driver, DriverError, Key};
use ifmatch_runtime::KeyedQueue;
use ifmatch_runtime::task::detach;

use crate::config::LayerConfig;
use crate::memory::ResponseMemory;
use crate::read::dates::VersionDates;
use crate::write::UnguardedWrites;

/// The settings of a layer, its register, and what it remembers.
pub(crate) struct LayerState {
    pub(crate) driver: Driver,
    pub(crate) memory: ResponseMemory,
    pub(crate) dates: VersionDates,
    /// Lets one writer of this process at a time probe a resource and request the permit. Two probing at once would
    /// make each other's probes stale.
    pub(crate) probing: KeyedQueue<Key>,
    pub(crate) unguarded: UnguardedWrites,
    pub(crate) config: LayerConfig,
}

impl LayerState {
    /// Returns the time that deadlines are compared with.
    pub(crate) fn now(&self) -> Timestamp {
        self.driver.now()
    }

    /// Returns the time of day, for comparison with the dates of responses.
    pub(crate) fn wall(&self) -> Timestamp {
        self.driver.clock().wall()
    }

    /// Runs a register operation on behalf of a read. Returns `None` if it fails or exceeds the lock timeout.
    pub(crate) async fn for_read<T>(
        &self,
        operation: impl Future<Output = Result<T, DriverError>>,
    ) -> Option<T> {
        match select(
            pin!(operation),
            pin!(self.driver.clock().sleep(self.config.lock_timeout)),
        )
        .await
        {
            Either::Left((result, _)) => result.ok(),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn is_authoritative(&self) -> bool {
        self.config.authority == Authority::Register
    }

    /// Marks the state of a resource as unknown, so the next conditional write probes it. Doesn't wait for a write
    /// in flight. While the register is unavailable, keeps trying in the background for as long as a write may take.
    pub(crate) async fn invalidate(self: &Arc<Self>, key: &Key) {
        if !self.try_invalidate(key).await {
            let (shared, key) = (Arc::clone(self), key.clone());
            drop(detach(async move {
                let deadline = shared.now().saturating_add(shared.config.write_timeout);
                shared
                    .driver
                    .retry_until(deadline, || async {
                        shared.try_invalidate(&key).await.then_some(())
                    })
                    .await;
            }));
        }
    }

    /// Forgets what reads have remembered.
    pub(crate) fn forget(&self, key: &Key) {
        self.memory.forget(key);
        self.dates.forget(key);
    }

    /// Returns `true` on success.
    async fn try_invalidate(&self, key: &Key) -> bool {
        self.forget(key);
        // An unknown state, too, needs a new revision: reads that began earlier must not be recorded.
        let Ok(nonce) = ifmatch_runtime::nonce() else {
            return false;
        };
        self.driver
            .apply(key, &Command::Invalidate(nonce))
            .await
            .is_ok()
    }
}
