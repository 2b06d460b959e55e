//! Giving the permit back, and what the client is told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::LAST_MODIFIED;
use http::{Method, Response};
use http_body::Body;
use ifmatch_core::command::{Begin, Command, Commit, Content, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Token;
use ifmatch_register::{Key, KeyLock, Register};
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use super::Writing;
use super::also_changed::changed;
use super::outcome::Verdict;
use super::run::End;
use crate::body::ResponseBody;
use crate::responses;
use crate::shared::Shared;

/// The pauses between attempts to give back a permit grow from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl<R: Register, C: Clock> Writing<R, C> {
    /// Reports the result of the write, first to the register and then to the client. The write keeps its lock until
    /// then, so that no other writer of this process starts from the register's previous state.
    pub(crate) async fn settle<T: Body, E>(
        &self,
        token: Token,
        deadline: Timestamp,
        end: End<T, E>,
        lock: KeyLock<'_>,
    ) -> Result<Response<ResponseBody<T>>, E> {
        let (verdict, answer) = match end {
            End::Answered(response) => {
                let (verdict, response) = self.judge(response).await;
                (verdict, Ok(response))
            }
            End::Failed(error) => (self.doubt(), Err(error)),
            End::TooLate => (Verdict::Abort, Ok(responses::unavailable())),
            End::Panicked => (self.doubt(), Ok(responses::panicked())),
            End::Cancelled => (self.doubt(), Ok(responses::interrupted())),
        };
        let changed = match (&verdict, &answer) {
            (Verdict::Abort, _) | (_, Err(_)) => Vec::new(),
            (_, Ok(response)) => changed(&*self.shared.config.keys, &self.key, &self.head, response),
        };
        if !matches!(verdict, Verdict::Abort) {
            self.shared.memory.forget(&self.key);
        }
        let applied = self.shared.driver.apply(&self.key, &verdict.command(token)).await;
        let lost = match applied.map(|applied| applied.outcome) {
            Ok(Outcome::Refused(Refusal::Stale)) => !matches!(verdict, Verdict::Abort),
            Ok(_) => false,
            Err(_) => {
                self.settle_later(token, deadline, verdict, changed);
                return answer.map(without_validators);
            }
        };
        if lost {
            // Another writer went ahead, and this one's effect may have come after it.
            self.shared.invalidate(&self.key, Some(lock)).await;
        }
        for key in &changed {
            self.shared.invalidate(key, None).await;
        }
        match (verdict, answer) {
            (Verdict::Commit(_), Ok(_)) if lost => Ok(responses::interrupted()),
            (Verdict::Commit(_), Ok(mut response)) => {
                // It is not the one in the record, whose second has not come.
                response.headers_mut().remove(LAST_MODIFIED);
                Ok(response)
            }
            (_, answer) => answer,
        }
    }

    fn doubt(&self) -> Verdict {
        Verdict::Doubt(self.shared.config.grace)
    }

    /// The client gets the truth, without a tag; the register hears of it as soon as it can, or the permit ends by itself
    /// and the next conditional writer probes.
    fn settle_later(&self, token: Token, deadline: Timestamp, verdict: Verdict, changed: Vec<Key>) {
        let shared = Arc::clone(&self.shared);
        let key = self.key.clone();
        drop(detach(async move {
            let give_back = || async { shared.driver.apply(&key, &verdict.command(token)).await.is_ok() };
            shared.repeat(deadline, give_back).await;
            for key in &changed {
                shared.repeat(deadline, || shared.try_invalidate(key, None)).await;
            }
        }));
    }
}

/// The tag is not in the record: nobody would know it.
fn without_validators<T: Body>(mut response: Response<ResponseBody<T>>) -> Response<ResponseBody<T>> {
    responses::strip_validators(response.headers_mut());
    response
}

impl<R: Register, C: Clock> Shared<R, C> {
    /// Marks the state of a resource as unknown, so that its next user probes the resource. While the register is down,
    /// continues in the background for as long as a write may take.
    ///
    /// `lock` is the lock of the write that changed the resource, if any.
    pub(crate) async fn invalidate(self: &Arc<Self>, key: &Key, lock: Option<KeyLock<'_>>) {
        if !self.try_invalidate(key, lock.as_ref()).await {
            let (shared, key) = (Arc::clone(self), key.clone());
            drop(detach(async move {
                let deadline = shared.now().saturating_add(shared.config.write_timeout);
                shared.repeat(deadline, || shared.try_invalidate(&key, None)).await;
            }));
        }
    }

    /// Whether it is done.
    async fn try_invalidate(&self, key: &Key, lock: Option<&KeyLock<'_>>) -> bool {
        self.memory.forget(key);
        // Even what is unknown gets a new revision: a read that began before must not be recorded.
        let Ok(nonce) = ifmatch_runtime::nonce() else { return false };
        let begin = Begin {
            method: &Method::POST,
            preconditions: &Preconditions::default(),
            // It has changed already, whoever holds its lease.
            lease: LeaseUse::Read(None),
            observed: None,
            authority: self.config.authority,
            nonce,
            ttl: self.config.grace,
        };
        let begin = Command::Begin(begin);
        let applied = match lock {
            Some(lock) => self.driver.apply_locked(lock, &begin).await,
            None => self.driver.apply(key, &begin).await,
        };
        let Ok(applied) = applied else { return false };
        match applied.outcome {
            Outcome::Granted(grant) => {
                let commit = Commit { token: grant.token, content: Content::Unknown };
                // A permit that cannot be given back ends by itself, with the same effect.
                let _ = self.driver.apply(key, &Command::Commit(commit)).await;
                true
            }
            // That write may commit what it saw before the change.
            Outcome::Refused(Refusal::InFlight { .. }) => false,
            _ => true,
        }
    }

    /// Tries until it is done or the deadline has come, once at least.
    async fn repeat<F: Future<Output = bool>>(&self, deadline: Timestamp, attempt: impl Fn() -> F) {
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
