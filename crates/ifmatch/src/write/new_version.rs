//! The version that a write has made: as the handler states it, or as a probe finds it.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_LOCATION, ETAG, LOCATION};
use http::{Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Content, Grant, Observation};
use ifmatch_core::digest::Hasher;

use super::also_changed::is_target;
use super::probe::{Answer, Known};
use super::request::WriteContext;
use crate::body::ResponseBody;
use crate::inner::{InnerService, RequestContent};
use crate::read::compressed_tag;
use crate::read::tag::{Tagged, own_tag};
use crate::read::vary::Vary;

/// Response extension with which a handler states the version that it has written.
///
/// The response then carries its `ETag`, without the GET that the layer would otherwise send to the handler
/// ([`Builder::probe_after_writes`](crate::Builder::probe_after_writes)).
///
/// ```
/// use axum::response::IntoResponse;
/// use axum::{Extension, Json};
/// use ifmatch::NewVersion;
///
/// // The body is what the next GET will send.
/// async fn save(Json(note): Json<String>) -> impl IntoResponse {
///     (Extension(NewVersion::Body), Json(note))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewVersion {
    /// The body of this response is the new representation, exactly as a GET with the same header fields would send it.
    Body,
    /// A GET would send this content.
    Content(Bytes),
    /// A GET would send this tag.
    Tag(EntityTag),
    /// The resource is gone.
    Gone,
}

/// The version that a write has made.
#[derive(Debug)]
pub(super) struct WrittenVersion {
    /// The content for the record.
    pub(super) content: Content,
    /// The tag for the response, unless the handler has set it.
    pub(super) tag: Option<EntityTag>,
    /// `true` if the tag is of what a probe found after the write, so that another change may have come in between.
    pub(super) is_probed: bool,
}

impl WrittenVersion {
    pub(super) const UNKNOWN: Self = Self { content: Content::Unknown, tag: None, is_probed: false };
}

impl WriteContext {
    /// Finds the version that a successful write has made. It is never derived from the request's body, since the handler
    /// may have stored something else.
    pub(super) async fn find_written_version<S, B>(
        &self,
        inner: &mut S,
        grant: &Grant,
        mut response: Response<S::Body>,
    ) -> (WrittenVersion, Response<ResponseBody<S::Body>>)
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let located = response.headers().get(CONTENT_LOCATION).map(|location| is_target(location, &self.head));
        match response.extensions_mut().remove::<NewVersion>() {
            Some(NewVersion::Body) => return self.hashed(response).await,
            Some(NewVersion::Content(content)) => {
                let mut hasher = Hasher::new(self.shared.config.tag_format);
                hasher.update(&content);
                let tag = hasher.finish().content_tag();
                return (self.stated(&response, tag), response.map(ResponseBody::inner));
            }
            Some(NewVersion::Tag(tag)) => return (self.stated(&response, tag), response.map(ResponseBody::inner)),
            Some(NewVersion::Gone) => {
                response.headers_mut().remove(ETAG);
                return (WrittenVersion::UNKNOWN, response.map(ResponseBody::inner));
            }
            None => {}
        }
        let own = own_tag(response.headers());
        let replaces = [Method::PUT, Method::PATCH].contains(&self.head.method);
        if own.is_some() && (located == Some(true) || (located.is_none() && replaces)) {
            let made = WrittenVersion { content: self.content(&response, own), ..WrittenVersion::UNKNOWN };
            return (made, response.map(ResponseBody::inner));
        }
        let has_body = matches!(response.status(), StatusCode::OK | StatusCode::CREATED);
        if located == Some(true) && has_body && self.head.method != Method::DELETE {
            return self.hashed(response).await;
        }
        if !self.probes_after(&response, located) {
            return (WrittenVersion::UNKNOWN, response.map(ResponseBody::inner));
        }
        (self.probed(inner, grant).await, response.map(ResponseBody::inner))
    }

    /// Returns `true` if the validators of the response may describe the target, and the handler has given none. Those of
    /// a 201 with another `Location` describe the resource there (RFC 9110 §15.3.2).
    fn probes_after<T>(&self, response: &Response<T>, located: Option<bool>) -> bool {
        let location = response.headers().get(LOCATION).filter(|_| response.status() == StatusCode::CREATED);
        self.shared.config.probes_after_writes
            && [Method::PUT, Method::PATCH, Method::POST, Method::DELETE].contains(&self.head.method)
            && located != Some(false)
            && location.is_none_or(|location| is_target(location, &self.head))
            && (self.head.method == Method::DELETE || !response.headers().contains_key(ETAG))
    }

    /// Hashes the body of the response, which is the new representation.
    async fn hashed<T: Body>(&self, response: Response<T>) -> (WrittenVersion, Response<ResponseBody<T>>) {
        let tagged = Tagged::of(&self.shared, response).await;
        let tag = tagged.tag.clone().filter(|tag| !tag.is_weak());
        let response = tagged.into_response();
        let content = self.content(&response, tag.clone());
        (WrittenVersion { content, tag, is_probed: false }, response)
    }

    fn stated<T>(&self, response: &Response<T>, tag: EntityTag) -> WrittenVersion {
        WrittenVersion { content: self.content(response, Some(tag.clone())), tag: Some(tag), is_probed: false }
    }

    /// Runs the inner service with GET while the permit lasts. Nothing that goes wrong here concerns the write.
    async fn probed<S, B>(&self, inner: &mut S, grant: &Grant) -> WrittenVersion
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let head = self.probe_head(grant.current.version());
        let probe = AssertUnwindSafe(self.get(inner, head, Known::Written(grant.token.revision))).catch_unwind();
        let deadline = self.handler_deadline(grant.deadline);
        let answer = self.shared.driver.until(deadline, probe).await;
        let Ok(Ok(Ok(Answer::State { observation, is_recordable }))) = answer else { return WrittenVersion::UNKNOWN };
        let Observation::Present { variant, tag: Some(tag), .. } = observation else { return WrittenVersion::UNKNOWN };
        // Its effect may be what the probe has found.
        if self.shared.unguarded.is_in_flight(&self.key) {
            return WrittenVersion::UNKNOWN;
        }
        let is_recordable = is_recordable && !tag.is_weak();
        let content = if is_recordable { Content::Tagged { variant, tag: tag.clone() } } else { Content::Unknown };
        WrittenVersion { content, tag: Some(tag), is_probed: true }
    }

    fn content<T>(&self, response: &Response<T>, tag: Option<EntityTag>) -> Content {
        let variant =
            Vary::of(response.headers()).and_then(|vary| vary.select(self.head.uri.query(), &self.head.headers));
        match (variant, tag.filter(|tag| !tag.is_weak())) {
            (Some(variant), Some(tag)) => Content::Tagged { variant, tag },
            _ => Content::Unknown,
        }
    }

    /// Returns the tag as this client sees it in a GET.
    pub(super) fn shown(&self, tag: &EntityTag) -> EntityTag {
        if self.shared.config.behind_compression {
            return compressed_tag::shown(tag, &self.head.headers);
        }
        tag.clone()
    }
}
