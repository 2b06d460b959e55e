//! What a handler's response says about the resource.

use http::header::{CONTENT_LOCATION, ETAG};
use http::{Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Commit, Content, Doubt};
use ifmatch_core::record::Token;
use ifmatch_register::Register;
use ifmatch_runtime::Clock;
use std::time::Duration;

use super::Writing;
use super::also_changed::is_target;
use crate::body::ResponseBody;
use crate::read::compressed_tag;
use crate::read::tag::{Tagged, own_tag};
use crate::read::vary::Vary;

/// What is to become of the permit.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The write took effect.
    Commit(Content),
    /// It did not.
    Abort,
    /// It may have, or may still do so for this long.
    Doubt(Duration),
}

impl Verdict {
    pub(crate) fn command(&self, token: Token) -> Command<'static> {
        match self {
            Self::Commit(content) => Command::Commit(Commit { token, content: content.clone() }),
            Self::Abort => Command::Abort(token),
            Self::Doubt(grace) => Command::Doubt(Doubt { token, grace: *grace }),
        }
    }
}

impl<R: Register, C: Clock> Writing<R, C> {
    /// Reads a response.
    ///
    /// - 2xx: done. 202: the effect may come at any time until the deadline; but that of a POST is a task somewhere else, as
    ///   a rule, and the next one need not wait for it.
    /// - 3xx: the handler came to its end; whether it changed anything before it sent the client elsewhere, the next
    ///   probe tells.
    /// - 4xx: not done. 408 is what a timeout inside answers when it has cut off a handler: in doubt.
    /// - All else: in doubt.
    pub(crate) async fn judge<T: Body>(&self, response: Response<T>) -> (Verdict, Response<ResponseBody<T>>) {
        let config = &self.shared.config;
        let verdict = match response.status() {
            StatusCode::ACCEPTED if self.head.method == Method::POST => Verdict::Commit(Content::Unknown),
            StatusCode::ACCEPTED => Verdict::Doubt(config.write_timeout),
            status if status.is_success() => return self.judge_success(response).await,
            status if status.is_redirection() => Verdict::Commit(Content::Unknown),
            StatusCode::REQUEST_TIMEOUT => Verdict::Doubt(config.grace),
            status if status.is_client_error() => Verdict::Abort,
            _ => Verdict::Doubt(config.grace),
        };
        (verdict, response.map(ResponseBody::inner))
    }

    /// The new tag is the one that the handler gave, or the hash of a body that is the new representation. What was
    /// sent is no measure: the handler may have stored something else.
    async fn judge_success<T: Body>(&self, response: Response<T>) -> (Verdict, Response<ResponseBody<T>>) {
        let located = response.headers().get(CONTENT_LOCATION).map(|location| is_target(location, &self.head));
        let of_target = match (located, &self.head.method) {
            (_, &Method::DELETE) => false,
            (Some(is_target), _) => is_target,
            (None, method) => [Method::PUT, Method::PATCH].contains(method),
        };
        if !of_target {
            return (Verdict::Commit(Content::Unknown), response.map(ResponseBody::inner));
        }
        let given = own_tag(response.headers());
        let whole = located == Some(true) && matches!(response.status(), StatusCode::OK | StatusCode::CREATED);
        if given.is_some() || !whole {
            let content = self.tagged(&response, given);
            return (Verdict::Commit(content), response.map(ResponseBody::inner));
        }
        let mut tagged = Tagged::of(&self.shared, response).await;
        let hashed = tagged.tag.clone();
        if let Some(tag) = &hashed {
            let shown = self.shared.config.behind_compression.then(|| compressed_tag::shown(tag, &self.head.headers));
            tagged.head.headers.insert(ETAG, shown.as_ref().unwrap_or(tag).to_header());
        }
        let response = tagged.into_response();
        (Verdict::Commit(self.tagged(&response, hashed)), response)
    }

    fn tagged<T>(&self, response: &Response<T>, tag: Option<EntityTag>) -> Content {
        let tag = tag.filter(|tag| !tag.is_weak());
        let variant =
            Vary::of(response.headers()).and_then(|vary| vary.select(self.head.uri.query(), &self.head.headers));
        match (variant, tag) {
            (Some(variant), Some(tag)) => Content::Tagged { variant, tag },
            _ => Content::Unknown,
        }
    }
}
