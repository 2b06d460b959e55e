//! The version that a write has made: as the handler states it, or as a probe finds it.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_LOCATION, ETAG, LOCATION};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Content, Grant, Observation};
use ifmatch_core::digest::Hasher;

use super::also_changed::is_target;
use super::probe::{ProbeAnswer, TagSource};
use super::request::WriteContext;
use crate::body::ResponseBody;
use crate::inner::{InnerService, RequestContent};
use crate::read::compressed_tag;
use crate::read::tag::{TaggedResponse, own_tag};
use crate::read::vary::VaryFields;
use crate::shared::LayerState;

/// Response extension that states the version that the handler has written.
///
/// The response then carries its `ETag`, without the GET that the layer would otherwise send to the handler
/// ([`Builder::get_after_writes`](crate::Builder::get_after_writes)). In a 201 with a `Location`, it's the new
/// resource's version.
///
/// ```
/// use axum::Json;
/// use axum::response::IntoResponse;
/// use ifmatch::NewVersion;
///
/// // The body is what the next GET will send.
/// async fn save(Json(note): Json<String>) -> impl IntoResponse {
///     (NewVersion::Body, Json(note)) // without the feature `axum`: `axum::Extension(NewVersion::Body)`
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
    /// `true` if the tag is of what a probe found after the write, so another change may have come in between.
    pub(super) is_probed: bool,
}

impl WrittenVersion {
    /// A version of which nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        content: Content::Unknown,
        tag: None,
        is_probed: false,
    };
}

impl WriteContext {
    /// Finds the version that a successful write has made. It is never derived from the request's body, since the handler
    /// may have stored something else.
    pub(super) async fn find_written_version<S, B>(
        &self,
        inner: &mut S,
        grant: &Grant,
        response: Response<S::Body>,
    ) -> (WrittenVersion, Response<ResponseBody<S::Body>>)
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let located = response
            .headers()
            .get(CONTENT_LOCATION)
            .map(|location| is_target(location, &self.head));
        let is_elsewhere = describes_another(&response, &self.head);
        let response = match stated(&self.shared, response).await {
            Ok((tag, response)) => {
                let recorded = tag.clone().filter(|_| !is_elsewhere);
                let content =
                    recorded.map_or(Content::Unknown, |tag| self.content(&response, Some(tag)));
                return (
                    WrittenVersion {
                        content,
                        tag,
                        is_probed: false,
                    },
                    response,
                );
            }
            Err(response) => response,
        };
        let own = own_tag(response.headers()).filter(|_| !is_elsewhere);
        let replaces = [Method::PUT, Method::PATCH].contains(&self.head.method);
        if own.is_some() && (located == Some(true) || (located.is_none() && replaces)) {
            let made = WrittenVersion {
                content: self.content(&response, own),
                ..WrittenVersion::UNKNOWN
            };
            return (made, response.map(ResponseBody::inner));
        }
        let has_body = matches!(response.status(), StatusCode::OK | StatusCode::CREATED);
        if located == Some(true) && has_body && self.head.method != Method::DELETE {
            return self.hashed(response).await;
        }
        if is_elsewhere || !self.probes_after(&response, located) {
            return (WrittenVersion::UNKNOWN, response.map(ResponseBody::inner));
        }
        (
            self.probed(inner, grant).await,
            response.map(ResponseBody::inner),
        )
    }

    /// Returns `true` if the handler has given no validators, and the layer should find some. Where others write past the layer, a GET
    /// may find their version, which this client hasn't seen.
    fn probes_after<T>(&self, response: &Response<T>, located: Option<bool>) -> bool {
        self.shared.config.gets_after_writes
            && !self.shared.config.handlers_check_versions
            && [Method::PUT, Method::PATCH, Method::POST, Method::DELETE]
                .contains(&self.head.method)
            && located != Some(false)
            && (self.head.method == Method::DELETE || !response.headers().contains_key(ETAG))
    }

    /// Hashes the body of the response, which is the new representation.
    async fn hashed<T: Body>(
        &self,
        response: Response<T>,
    ) -> (WrittenVersion, Response<ResponseBody<T>>) {
        let (tag, response) = hash(&self.shared, response).await;
        let content = self.content(&response, tag.clone());
        (
            WrittenVersion {
                content,
                tag,
                is_probed: false,
            },
            response,
        )
    }

    /// Runs the inner service with GET while the permit lasts. Nothing that goes wrong here concerns the write.
    async fn probed<S, B>(&self, inner: &mut S, grant: &Grant) -> WrittenVersion
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let head = self.probe_head(grant.current.version());
        let probe =
            AssertUnwindSafe(self.get(inner, head, TagSource::Written(grant.token.revision)))
                .catch_unwind();
        let deadline = self.handler_deadline(grant.deadline);
        let answer = self.shared.driver.until(deadline, probe).await;
        let Ok(Ok(Ok(ProbeAnswer::State {
            observation,
            is_recordable,
        }))) = answer
        else {
            return WrittenVersion::UNKNOWN;
        };
        let Observation::Present {
            variant,
            tag: Some(tag),
            ..
        } = observation
        else {
            return WrittenVersion::UNKNOWN;
        };
        // Its effect may be what the probe has found.
        if self.shared.unguarded.is_in_flight(&self.key) {
            return WrittenVersion::UNKNOWN;
        }
        let is_recordable = is_recordable && !tag.is_weak();
        let content = if is_recordable {
            Content::Tagged {
                variant,
                tag: tag.clone(),
            }
        } else {
            Content::Unknown
        };
        WrittenVersion {
            content,
            tag: Some(tag),
            is_probed: true,
        }
    }

    fn content<T>(&self, response: &Response<T>, tag: Option<EntityTag>) -> Content {
        let variant = VaryFields::of(response.headers())
            .and_then(|vary| vary.select(self.head.uri.query(), &self.head.headers));
        match (variant, tag.filter(|tag| !tag.is_weak())) {
            (Some(variant), Some(tag)) => Content::Tagged { variant, tag },
            _ => Content::Unknown,
        }
    }
}

/// Returns the tag of the version that the handler states by [`NewVersion`], or `None` for a resource that is gone.
///
/// # Errors
/// Returns the response if it states none.
pub(super) async fn stated<T: Body>(
    shared: &LayerState,
    mut response: Response<T>,
) -> Result<(Option<EntityTag>, Response<ResponseBody<T>>), Response<T>> {
    let tag = match response.extensions_mut().remove::<NewVersion>() {
        Some(NewVersion::Body) => return Ok(hash(shared, response).await),
        Some(NewVersion::Content(content)) => {
            let mut hasher = Hasher::new(shared.config.tag_format);
            hasher.update(&content);
            Some(hasher.finish().content_tag())
        }
        Some(NewVersion::Tag(tag)) => Some(tag),
        Some(NewVersion::Gone) => {
            response.headers_mut().remove(ETAG);
            None
        }
        None => return Err(response),
    };
    Ok((tag, response.map(ResponseBody::inner)))
}

/// Returns the strong tag of the response's body.
async fn hash<T: Body>(
    shared: &LayerState,
    response: Response<T>,
) -> (Option<EntityTag>, Response<ResponseBody<T>>) {
    let tagged = TaggedResponse::of(shared, response).await;
    (
        tagged.tag.clone().filter(|tag| !tag.is_weak()),
        tagged.into_response(),
    )
}

/// Returns `true` if the validators of a response describe the resource that its `Location` names, which isn't the target: a 201
/// does (RFC 9110 §15.3.2).
fn describes_another<T>(response: &Response<T>, request: &Parts) -> bool {
    let location = response
        .headers()
        .get(LOCATION)
        .filter(|_| response.status() == StatusCode::CREATED);
    location.is_some_and(|location| !is_target(location, request))
}

/// Returns a tag as this client sees it in a GET.
pub(super) fn shown(shared: &LayerState, tag: &EntityTag, request: &Parts) -> EntityTag {
    if shared.config.behind_compression {
        compressed_tag::shown(tag, &request.headers)
    } else {
        tag.clone()
    }
}
