//! Marking the state of a resource as unknown.

use std::sync::Arc;

use ifmatch_core::command::Command;
use ifmatch_register::Key;
use ifmatch_runtime::task::detach;

use crate::shared::Shared;

impl Shared {
    /// Marks the state of a resource as unknown, so that the next conditional write probes it. Does not wait for a write
    /// in flight. While the register is unavailable, keeps trying in the background for as long as a write may take.
    pub(crate) async fn invalidate(self: &Arc<Self>, key: &Key) {
        if !self.try_invalidate(key).await {
            let (shared, key) = (Arc::clone(self), key.clone());
            drop(detach(async move {
                let deadline = shared.now().saturating_add(shared.config.write_timeout);
                shared.driver.retry_until(deadline, || async { shared.try_invalidate(&key).await.then_some(()) }).await;
            }));
        }
    }

    /// Returns `true` on success.
    async fn try_invalidate(&self, key: &Key) -> bool {
        self.memory.forget(key);
        // An unknown state, too, needs a new revision: reads that began earlier must not be recorded.
        let Ok(nonce) = ifmatch_runtime::nonce() else { return false };
        self.driver.apply(key, &Command::Invalidate(nonce)).await.is_ok()
    }
}
