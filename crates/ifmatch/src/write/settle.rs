//! Reporting the result of a write to the register and to the client.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::{ETAG, LAST_MODIFIED};
use http::{Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Commit, Doubt, Grant, Observation, Outcome, Refusal};
use ifmatch_core::precondition::{Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::record::Token;
use ifmatch_register::{Key, KeyLock};
use ifmatch_runtime::task::detach;

use super::also_changed;
use super::new_version::{WrittenVersion, shown};
use super::probe::{ProbeAnswer, TagSource};
use super::request::{WriteContext, WriteResult};
use super::run::HandlerEnd;
use crate::body::ResponseBody;
use crate::inner::{InnerService, RequestContent};
use crate::read::tag::own_tag;
use crate::responses;

/// The effect of a write.
#[derive(Debug)]
enum WriteEffect {
    Done(WrittenVersion),
    None,
    /// It may have taken effect, or may still do so for this long.
    Unknown(Duration),
}

impl WriteEffect {
    /// Returns the command that gives the permit back.
    fn command(&self, token: Token) -> Command<'static> {
        match self {
            Self::Done(made) => {
                Command::Commit(Commit::new(token, made.content.clone()).unless_disturbed())
            }
            Self::None => Command::Abort(token),
            Self::Unknown(grace) => Command::Doubt(Doubt::new(token, *grace)),
        }
    }
}

impl WriteContext {
    /// Reports the result of the write, first to the register and then to the client. The lock is held until then, so
    /// that no other writer of this process starts from the register's previous state.
    pub(crate) async fn settle<S, B>(
        &self,
        inner: &mut S,
        grant: &Grant,
        end: HandlerEnd<S::Body, S::Error>,
        lock: KeyLock<'_>,
    ) -> WriteResult<S, B>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let unknown = || WriteEffect::Unknown(self.shared.config.grace_period);
        let (effect, result) = match end {
            HandlerEnd::Answered(response) => {
                let (effect, response) = self.effect_of(inner, grant, response).await;
                (effect, Ok(response))
            }
            HandlerEnd::Failed(error) => (unknown(), Err(error)),
            HandlerEnd::TooLate => (WriteEffect::None, Ok(responses::unavailable())),
            HandlerEnd::Panicked => (unknown(), Ok(responses::handler_failed())),
            HandlerEnd::Cancelled => (unknown(), Ok(responses::outcome_unknown())),
            HandlerEnd::Unchecked => (unknown(), Ok(responses::version_unchecked())),
        };
        let also_changed = match (&effect, &result) {
            (WriteEffect::None, _) | (_, Err(_)) => Vec::new(),
            (_, Ok(response)) => {
                also_changed::keys(&*self.shared.config.keys, &self.key, &self.head, response)
            }
        };
        if !matches!(effect, WriteEffect::None) {
            self.shared.forget(&self.key);
        }
        let command = effect.command(grant.token);
        let Ok(applied) = self
            .shared
            .driver
            .give_back(&self.key, None, command, grant.deadline)
            .await
        else {
            self.invalidate_in_background(also_changed);
            return result.map(without_validators);
        };
        if self.is_refuted(&result) {
            self.shared.invalidate(&self.key).await;
        }
        let is_overtaken = applied.outcome == Outcome::Refused(Refusal::Stale)
            && !matches!(effect, WriteEffect::None);
        if is_overtaken {
            // Another writer got the permit, and this write may have taken effect after that one.
            self.shared.invalidate(&self.key).await;
        }
        drop(lock);
        for key in &also_changed {
            self.shared.invalidate(key).await;
        }
        match (effect, result) {
            (WriteEffect::Done(_), Ok(_)) if is_overtaken => Ok(responses::outcome_unknown()),
            (WriteEffect::Done(made), Ok(response)) => {
                let is_certain = !made.is_probed || !applied.before.is_disturbed(grant.token);
                Ok(self.acknowledge(response, made.tag.filter(|_| is_certain)))
            }
            (_, result) => result,
        }
    }

    /// Returns `true` if a handler has found another version than the client's, which may also be the recorded one: something has
    /// written past the layer. A read must not confirm it from memory, or the client would never get out of the 412.
    fn is_refuted<T, E>(&self, result: &Result<Response<T>, E>) -> bool {
        let is_refused =
            |response: &Response<T>| response.status() == StatusCode::PRECONDITION_FAILED;
        self.unchecked.is_some() && result.as_ref().is_ok_and(is_refused)
    }

    /// Adds the new tag to the response to a successful write.
    fn acknowledge<T: Body>(
        &self,
        mut response: Response<ResponseBody<T>>,
        tag: Option<EntityTag>,
    ) -> Response<ResponseBody<T>> {
        // The record's date lies in the future until the next second: the handler's date is another one.
        response.headers_mut().remove(LAST_MODIFIED);
        if tag.is_none() && self.head.method == Method::DELETE {
            response.headers_mut().remove(ETAG);
        }
        // Otherwise the handler's own.
        if let Some(tag) = tag.or_else(|| own_tag(response.headers())) {
            response
                .headers_mut()
                .insert(ETAG, shown(&self.shared, &tag, &self.head).to_header());
        }
        response
    }

    /// Marks the states of other resources as unknown in the background, since the register failed.
    fn invalidate_in_background(&self, keys: Vec<Key>) {
        let shared = Arc::clone(&self.shared);
        drop(detach(async move {
            for key in &keys {
                shared.invalidate(key).await;
            }
        }));
    }

    /// Derives the effect from a response.
    ///
    /// - 2xx: done. After 202 the effect may come at any time until the deadline. For POST, 202 usually means a task
    ///   somewhere else, which the next POST needn't wait for.
    /// - 3xx: the handler has ended, perhaps without an effect. The next probe shows which.
    /// - 4xx: none, except for 408, the response of a timeout that has cut off the handler: unknown.
    /// - Others: unknown.
    async fn effect_of<S, B>(
        &self,
        inner: &mut S,
        grant: &Grant,
        response: Response<S::Body>,
    ) -> (WriteEffect, Response<ResponseBody<S::Body>>)
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let config = &self.shared.config;
        let unknown = WrittenVersion::UNKNOWN;
        let effect = match response.status() {
            StatusCode::ACCEPTED if self.head.method == Method::POST => WriteEffect::Done(unknown),
            StatusCode::ACCEPTED => WriteEffect::Unknown(config.write_timeout),
            status if status.is_success() => {
                let (made, response) = self.find_written_version(inner, grant, response).await;
                return (WriteEffect::Done(made), response);
            }
            status if status.is_redirection() => WriteEffect::Done(unknown),
            StatusCode::REQUEST_TIMEOUT => WriteEffect::Unknown(config.grace_period),
            StatusCode::PRECONDITION_FAILED
                if config.gets_after_writes && responses::lacks_reason(&response) =>
            {
                return (
                    WriteEffect::None,
                    self.explained(inner, grant, response).await,
                );
            }
            status if status.is_client_error() => WriteEffect::None,
            _ => WriteEffect::Unknown(config.grace_period),
        };
        (effect, response.map(ResponseBody::inner))
    }

    /// Gives a handler's 412 its reason and the current tag, by a GET while the permit lasts. Otherwise the client can't tell a version
    /// that was replaced from a resource that exists already, or no longer.
    async fn explained<S, B>(
        &self,
        inner: &mut S,
        grant: &Grant,
        response: Response<S::Body>,
    ) -> Response<ResponseBody<S::Body>>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let recorded = grant.current.version();
        let probe = self.get(
            inner,
            self.probe_head(recorded),
            TagSource::Recorded(recorded),
        );
        let deadline = self.handler_deadline(grant.deadline);
        let answer = self
            .shared
            .driver
            .until(deadline, AssertUnwindSafe(probe).catch_unwind())
            .await;
        let (tag, last_modified, exists) = match answer {
            Ok(Ok(Ok(ProbeAnswer::State {
                observation:
                    Observation::Present {
                        tag, last_modified, ..
                    },
                ..
            }))) => (tag, last_modified, true),
            Ok(Ok(Ok(ProbeAnswer::State {
                observation: Observation::Absent,
                ..
            }))) => (None, None, false),
            _ => return response.map(ResponseBody::inner),
        };
        let validators = Validators {
            tags: tag.as_slice(),
            last_modified,
        };
        match self
            .conditions
            .evaluate(&self.head.method, exists.then_some(&validators))
        {
            Verdict::Failed(condition) => {
                let shown = tag.map(|tag| shown(&self.shared, &tag, &self.head));
                responses::replaced(
                    &response,
                    &Problem::precondition_failed(condition, shown.as_ref()),
                )
            }
            // It has changed again: the handler's answer is the better one.
            _ => response.map(ResponseBody::inner),
        }
    }
}

/// Removes the validators, since they aren't in the record.
fn without_validators<T: Body>(
    mut response: Response<ResponseBody<T>>,
) -> Response<ResponseBody<T>> {
    response.headers_mut().remove(ETAG);
    response.headers_mut().remove(LAST_MODIFIED);
    response
}
