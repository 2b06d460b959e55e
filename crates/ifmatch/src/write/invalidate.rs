//! Marking the state of a resource as unknown.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::command::Command;
use ifmatch_core::date::Timestamp;
use ifmatch_register::{Key, Register};
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use crate::shared::Shared;

/// Shortest and longest pause between attempts to reach the register.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl<R: Register, C: Clock> Shared<R, C> {
    /// Marks the state of a resource as unknown, so that the next conditional write probes it. Does not wait for a write
    /// in flight. While the register is unavailable, keeps trying in the background for as long as a write may take.
    pub(crate) async fn invalidate(self: &Arc<Self>, key: &Key) {
        if !self.try_invalidate(key).await {
            let (shared, key) = (Arc::clone(self), key.clone());
            drop(detach(async move {
                let deadline = shared.now(&key).saturating_add(shared.config.write_timeout);
                shared.retry_until(&key, deadline, || shared.try_invalidate(&key)).await;
            }));
        }
    }

    /// Returns `true` on success.
    pub(super) async fn try_invalidate(&self, key: &Key) -> bool {
        self.memory.forget(key);
        // An unknown state, too, needs a new revision: reads that began earlier must not be recorded.
        let Ok(nonce) = ifmatch_runtime::nonce() else { return false };
        self.driver.apply(key, &Command::Invalidate(nonce)).await.is_ok()
    }

    /// Repeats an attempt until it succeeds or a deadline of this key has passed, but makes at least one.
    pub(super) async fn retry_until<F: Future<Output = bool>>(
        &self,
        key: &Key,
        deadline: Timestamp,
        attempt: impl Fn() -> F,
    ) {
        let mut pause = PAUSE.0;
        loop {
            self.driver.clock().sleep(pause).await;
            if attempt().await || self.now(key) >= deadline {
                return;
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}
