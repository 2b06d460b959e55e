//! Reporting the result of a write to the register and to the client.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LOCATION, ETAG, LAST_MODIFIED};
use http::{Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Commit, Content, Doubt, Grant, Outcome, Refusal};
use ifmatch_core::record::Token;
use ifmatch_register::{Key, KeyLock, Register};
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use super::also_changed::{self, is_target};
use super::request::WriteContext;
use super::run::End;
use crate::body::ResponseBody;
use crate::read::compressed_tag;
use crate::read::tag::{Tagged, own_tag};
use crate::read::vary::Vary;
use crate::responses;

/// The effect of a write.
#[derive(Clone, Debug)]
enum Effect {
    Done(Content),
    None,
    /// It may have taken effect, or may still do so for this long.
    Unknown(Duration),
}

impl Effect {
    /// Returns the command that gives the permit back.
    fn command(&self, token: Token) -> Command<'static> {
        match self {
            Self::Done(content) => Command::Commit(Commit::new(token, content.clone())),
            Self::None => Command::Abort(token),
            Self::Unknown(grace) => Command::Doubt(Doubt::new(token, *grace)),
        }
    }
}

impl<R: Register, C: Clock> WriteContext<R, C> {
    /// Reports the result of the write, first to the register and then to the client. The lock is held until then, so
    /// that no other writer of this process starts from the register's previous state.
    pub(crate) async fn settle<T: Body, E>(
        &self,
        grant: &Grant,
        end: End<T, E>,
        lock: KeyLock<'_>,
    ) -> Result<Response<ResponseBody<T>>, E> {
        let unknown = || Effect::Unknown(self.shared.config.grace);
        let (effect, result) = match end {
            End::Answered(response) => {
                let (effect, response) = self.effect_of(response).await;
                (effect, Ok(response))
            }
            End::Failed(error) => (unknown(), Err(error)),
            End::TooLate => (Effect::None, Ok(responses::unavailable())),
            End::Panicked => (unknown(), Ok(responses::handler_failed())),
            End::Cancelled => (unknown(), Ok(responses::outcome_unknown())),
        };
        let also_changed = match (&effect, &result) {
            (Effect::None, _) | (_, Err(_)) => Vec::new(),
            (_, Ok(response)) => also_changed::keys(&*self.shared.config.keys, &self.key, &self.head, response),
        };
        if !matches!(effect, Effect::None) {
            self.shared.memory.forget(&self.key);
        }
        let applied = self.shared.driver.apply(&self.key, &effect.command(grant.token)).await;
        let Ok(applied) = applied else {
            self.settle_in_background(grant, effect, also_changed);
            return result.map(without_validators);
        };
        let is_overtaken = applied.outcome == Outcome::Refused(Refusal::Stale) && !matches!(effect, Effect::None);
        if is_overtaken {
            // Another writer got the permit, and this write may have taken effect after that one.
            self.shared.invalidate(&self.key, Some(lock)).await;
        }
        for key in &also_changed {
            self.shared.invalidate(key, None).await;
        }
        match (effect, result) {
            (Effect::Done(_), Ok(_)) if is_overtaken => Ok(responses::outcome_unknown()),
            (Effect::Done(_), Ok(mut response)) => {
                // The date in the record is in the future still, and this is another one.
                response.headers_mut().remove(LAST_MODIFIED);
                Ok(response)
            }
            (_, result) => result,
        }
    }

    /// Keeps reporting to a register that is unavailable, until the permit expires. The next conditional write then
    /// probes.
    fn settle_in_background(&self, grant: &Grant, effect: Effect, also_changed: Vec<Key>) {
        let (shared, key) = (Arc::clone(&self.shared), self.key.clone());
        let (token, deadline) = (grant.token, grant.deadline);
        drop(detach(async move {
            let report = || async { shared.driver.apply(&key, &effect.command(token)).await.is_ok() };
            shared.retry_until(deadline, report).await;
            for key in &also_changed {
                shared.retry_until(deadline, || shared.try_invalidate(key, None)).await;
            }
        }));
    }

    /// Derives the effect from a response.
    ///
    /// - 2xx: done. After 202 the effect may come at any time until the deadline. For POST, 202 usually means a task
    ///   somewhere else, which the next POST need not wait for.
    /// - 3xx: the handler has ended, perhaps without an effect. The next probe shows which.
    /// - 4xx: none, except for 408, the response of a timeout that has cut off the handler: unknown.
    /// - Others: unknown.
    async fn effect_of<T: Body>(&self, response: Response<T>) -> (Effect, Response<ResponseBody<T>>) {
        let config = &self.shared.config;
        let effect = match response.status() {
            StatusCode::ACCEPTED if self.head.method == Method::POST => Effect::Done(Content::Unknown),
            StatusCode::ACCEPTED => Effect::Unknown(config.write_timeout),
            status if status.is_success() => return self.effect_of_success(response).await,
            status if status.is_redirection() => Effect::Done(Content::Unknown),
            StatusCode::REQUEST_TIMEOUT => Effect::Unknown(config.grace),
            status if status.is_client_error() => Effect::None,
            _ => Effect::Unknown(config.grace),
        };
        (effect, response.map(ResponseBody::inner))
    }

    /// The new tag is the one that the handler gave, or the hash of a response body that is the new representation. It is
    /// never derived from the request's body, since the handler may have stored something else.
    async fn effect_of_success<T: Body>(&self, response: Response<T>) -> (Effect, Response<ResponseBody<T>>) {
        let located = response.headers().get(CONTENT_LOCATION).map(|location| is_target(location, &self.head));
        let describes_target = match (located, &self.head.method) {
            (_, &Method::DELETE) => false,
            (Some(is_target), _) => is_target,
            (None, method) => [Method::PUT, Method::PATCH].contains(method),
        };
        if !describes_target {
            return (Effect::Done(Content::Unknown), response.map(ResponseBody::inner));
        }
        let own = own_tag(response.headers());
        let has_representation =
            located == Some(true) && matches!(response.status(), StatusCode::OK | StatusCode::CREATED);
        if own.is_some() || !has_representation {
            let content = self.content(&response, own);
            return (Effect::Done(content), response.map(ResponseBody::inner));
        }
        let mut tagged = Tagged::of(&self.shared, response).await;
        let hashed = tagged.tag.clone();
        if let Some(tag) = &hashed {
            let shown = self.shared.config.behind_compression.then(|| compressed_tag::shown(tag, &self.head.headers));
            tagged.head.headers.insert(ETAG, shown.as_ref().unwrap_or(tag).to_header());
        }
        let response = tagged.into_response();
        (Effect::Done(self.content(&response, hashed)), response)
    }

    fn content<T>(&self, response: &Response<T>, tag: Option<EntityTag>) -> Content {
        let variant =
            Vary::of(response.headers()).and_then(|vary| vary.select(self.head.uri.query(), &self.head.headers));
        match (variant, tag.filter(|tag| !tag.is_weak())) {
            (Some(variant), Some(tag)) => Content::Tagged { variant, tag },
            _ => Content::Unknown,
        }
    }
}

/// Removes the validators, since they are not in the record.
fn without_validators<T: Body>(mut response: Response<ResponseBody<T>>) -> Response<ResponseBody<T>> {
    response.headers_mut().remove(ETAG);
    response.headers_mut().remove(LAST_MODIFIED);
    response
}
