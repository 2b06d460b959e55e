//! Marking the state of a resource as unknown.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Begin, Command, Commit, Content, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Key, KeyLock, Register};
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use crate::shared::Shared;

/// Shortest and longest pause between attempts to reach the register.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl<R: Register, C: Clock> Shared<R, C> {
    /// Marks the state of a resource as unknown, so that the next conditional write probes it. While the register is
    /// unavailable, keeps trying in the background for as long as a write may take.
    ///
    /// `lock` is held by the write that changed the resource, if it still runs.
    pub(crate) async fn invalidate(self: &Arc<Self>, key: &Key, lock: Option<KeyLock<'_>>) {
        if !self.try_invalidate(key, lock.as_ref()).await {
            let (shared, key) = (Arc::clone(self), key.clone());
            drop(detach(async move {
                let deadline = shared.now().saturating_add(shared.config.write_timeout);
                shared.retry_until(deadline, || shared.try_invalidate(&key, None)).await;
            }));
        }
    }

    /// Returns `true` on success.
    pub(super) async fn try_invalidate(&self, key: &Key, lock: Option<&KeyLock<'_>>) -> bool {
        self.memory.forget(key);
        // An unknown state, too, needs a new revision: reads that began earlier must not be recorded.
        let Ok(nonce) = ifmatch_runtime::nonce() else { return false };
        // The resource has changed already, so a lease must not prevent this.
        let begin = Begin::new(&Method::POST, &Preconditions::NONE, nonce, self.config.grace)
            .with_lease(LeaseUse::Read(None))
            .with_authority(self.config.authority);
        let begin = Command::Begin(begin);
        let applied = match lock {
            Some(lock) => self.driver.apply_locked(lock, &begin).await,
            None => self.driver.apply(key, &begin).await,
        };
        let Ok(applied) = applied else { return false };
        match applied.outcome {
            Outcome::Granted(grant) => {
                let commit = Commit::new(grant.token, Content::Unknown);
                // If this fails, the permit expires, with the same effect.
                let _ = self.driver.apply(key, &Command::Commit(commit)).await;
                true
            }
            // The write in flight may commit a state from before the change.
            Outcome::Refused(Refusal::InFlight { .. }) => false,
            _ => true,
        }
    }

    /// Repeats an attempt until it succeeds or the deadline has passed, but makes at least one.
    pub(super) async fn retry_until<F: Future<Output = bool>>(&self, deadline: Timestamp, attempt: impl Fn() -> F) {
        let mut pause = PAUSE.0;
        loop {
            self.driver.clock().sleep(pause).await;
            if attempt().await || self.now() >= deadline {
                return;
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}
