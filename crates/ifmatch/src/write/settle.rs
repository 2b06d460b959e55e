//! Giving the permit back, and what the client is told.

use std::sync::Arc;
use std::time::Duration;

use http::header::LAST_MODIFIED;
use http::{Method, Response};
use http_body::Body;
use ifmatch_core::command::{Begin, Command, Commit, Content, Outcome, Refusal};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{State, Token};
use ifmatch_store::{Clock, DriverError, Key, Register};

use super::Writing;
use super::outcome::Verdict;
use super::run::End;
use super::target::changed;
use crate::answer;
use crate::body::ResponseBody;
use crate::detach::detach;
use crate::shared::Shared;

/// The pauses between attempts to give back a permit grow from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl<R: Register, C: Clock> Writing<R, C> {
    /// Says what became of the write: first to the register, then to the client.
    pub(crate) async fn settle<T: Body, E>(
        &self,
        token: Token,
        deadline: Timestamp,
        end: End<T, E>,
    ) -> Result<Response<ResponseBody<T>>, E> {
        let (verdict, answer) = match end {
            End::Answered(response) => {
                let (verdict, response) = self.judge(response).await;
                (verdict, Ok(response))
            }
            End::Failed(error) => (self.doubt(), Err(error)),
            End::Panicked => (self.doubt(), Ok(answer::panicked())),
            End::Cancelled => (self.doubt(), Ok(answer::interrupted())),
        };
        if !matches!(verdict, Verdict::Abort) {
            self.shared.memory.forget(&self.key);
        }
        let applied = self.shared.driver.apply(&self.key, &verdict.command(token)).await;
        let lost = match applied.map(|applied| applied.outcome) {
            Ok(Outcome::Refused(Refusal::Stale)) => !matches!(verdict, Verdict::Abort),
            Ok(_) => false,
            Err(error) => return self.settle_later(token, deadline, verdict, answer, &error),
        };
        if lost {
            // Another writer went ahead, and this one's effect may have come after it.
            self.shared.invalidate(&self.key).await;
        }
        match (verdict, answer) {
            (Verdict::Commit(_), Ok(_)) if lost => Ok(answer::interrupted()),
            (Verdict::Commit(_), Ok(mut response)) => {
                for key in changed(&*self.shared.config.keys, &self.key, &self.head, &response) {
                    self.shared.invalidate(&key).await;
                }
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
    fn settle_later<T: Body, E>(
        &self,
        token: Token,
        deadline: Timestamp,
        verdict: Verdict,
        answer: Result<Response<ResponseBody<T>>, E>,
        _: &DriverError,
    ) -> Result<Response<ResponseBody<T>>, E> {
        let shared = Arc::clone(&self.shared);
        let key = self.key.clone();
        drop(detach(async move {
            let mut pause = PAUSE.0;
            while shared.now() < deadline {
                shared.driver.clock().sleep(pause).await;
                if shared.driver.apply(&key, &verdict.command(token)).await.is_ok() {
                    break;
                }
                pause = (pause * 2).min(PAUSE.1);
            }
        }));
        let mut answer = answer;
        if let Ok(response) = &mut answer {
            answer::strip_validators(response.headers_mut());
        }
        answer
    }
}

impl<R: Register, C: Clock> Shared<R, C> {
    /// Makes the state of a resource unknown: the next one who needs it asks the resource.
    pub(crate) async fn invalidate(&self, key: &Key) {
        self.memory.forget(key);
        let Ok(record) = self.driver.load(key).await else { return };
        let Ok(nonce) = ifmatch_store::nonce() else { return };
        if *record.state(self.now()) == State::Unknown {
            return;
        }
        let begin = Begin {
            method: &Method::POST,
            preconditions: &Preconditions::default(),
            observed: None,
            authority: self.config.authority,
            nonce,
            ttl: self.config.grace,
        };
        let Ok(applied) = self.driver.apply(key, &Command::Begin(begin)).await else { return };
        if let Outcome::Granted(grant) = applied.outcome {
            let commit = Commit { token: grant.token, content: Content::Unknown };
            // A permit that cannot be given back ends by itself, with the same effect.
            let _ = self.driver.apply(key, &Command::Commit(commit)).await;
        }
    }
}
