//! Probing: asking the inner service for the current state before a write with conditions that the record can't decide.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE,
    CONTENT_TYPE, EXPECT, LAST_MODIFIED, RANGE, TRAILER, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::command::{Observation, Observed};
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Revision, Variant, Version};
use ifmatch_core::tag::TagList;

use super::request::{WriteContext, WriteResult};
use crate::body::{RequestBody, ResponseBody};
use crate::inner::{self, InnerService, RequestContent};
use crate::read::cache_control::AllowedReuse;
use crate::read::request::strip_conditions;
use crate::read::tag::{TaggedResponse, own_tag};
use crate::read::vary::{VaryFields, select_variant};
use crate::responses;

/// The result of a probe.
pub(crate) enum ProbeResult<S: InnerService<B>, B: Body> {
    Observed(Observed),
    /// Another write is in flight, and a probe might see its effect or miss it.
    InFlight,
    /// The write must not go on. This is its result.
    Failed(WriteResult<S, B>),
}

/// The meaning of a response to a probe.
pub(super) enum ProbeAnswer<T: Body> {
    /// The state of the resource.
    State {
        observation: Observation,
        /// `true` if other clients get this representation, too, and its variant is known.
        is_recordable: bool,
    },
    /// The client gets the response: a client that may not read must not learn the result of a comparison either.
    PassOn(Response<ResponseBody<T>>),
    /// The state stays unknown, after a 5xx for example.
    Nothing,
}

/// Where the tag of a representation that is too long to hash comes from.
pub(super) enum TagSource<'a> {
    /// The version before the write.
    Recorded(Option<&'a Version>),
    /// The revision of the write itself, whose handler has ended.
    Written(Revision),
}

impl WriteContext {
    /// Runs the inner service with GET. If the conditions name the tag of a recorded variant, requests that variant;
    /// otherwise the one that the header fields of the write select.
    ///
    /// The record may be one that this process remembers. The permit is a swap that expects its revision, so if that succeeds, no other
    /// guarded write began after the record was seen, and the probe has found what the permit is for.
    pub(crate) async fn probe<S, B>(&self, inner: &mut S) -> ProbeResult<S, B>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let at = self.shared.now();
        let Ok(record) = self.shared.driver.recent(&self.key).await else {
            return ProbeResult::Failed(Ok(responses::unavailable()));
        };
        let Some(snapshot) = record.snapshot(at) else {
            return ProbeResult::InFlight;
        };
        let recorded = record.state(at).version();
        let head = self.probe_head(recorded);
        let answer =
            AssertUnwindSafe(self.get(inner, head, TagSource::Recorded(recorded))).catch_unwind();
        let timeout = self
            .shared
            .driver
            .clock()
            .sleep(self.shared.config.write_timeout);
        let answer = match select(pin!(answer), pin!(timeout)).await {
            Either::Left((Ok(answer), _)) => answer,
            Either::Left((Err(_), _)) | Either::Right(_) => Ok(ProbeAnswer::Nothing),
        };
        match answer {
            Ok(ProbeAnswer::State { observation, .. }) => {
                let authority = self.shared.config.authority;
                ProbeResult::Observed(Observed::new(snapshot, observation, authority))
            }
            Ok(ProbeAnswer::PassOn(response)) => ProbeResult::Failed(Ok(response)),
            Ok(ProbeAnswer::Nothing) => ProbeResult::Failed(Ok(responses::unavailable())),
            Err(error) => ProbeResult::Failed(Err(error)),
        }
    }

    pub(super) fn probe_head(&self, recorded: Option<&Version>) -> Parts {
        let mut head = self.head.clone();
        head.method = Method::GET;
        strip_conditions(&mut head.headers);
        for name in WRITE_FIELDS {
            head.headers.remove(name);
        }
        if let Some(variant) = recorded.and_then(|version| named_variant(&self.conditions, version))
        {
            select_variant(variant, &mut head);
        }
        head
    }

    /// Runs the inner service with this head, and finds the state of the resource in its response.
    pub(super) async fn get<S, B>(
        &self,
        inner: &mut S,
        head: Parts,
        source: TagSource<'_>,
    ) -> Result<ProbeAnswer<S::Body>, S::Error>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let variant_of = |vary: VaryFields| vary.select(head.uri.query(), &head.headers);
        let response = inner::run(
            inner,
            Request::from_parts(head.clone(), RequestBody::default()),
        )
        .await?;
        let last_modified = HttpDate::from_headers(response.headers(), LAST_MODIFIED);
        let selected = VaryFields::of(response.headers()).and_then(variant_of);
        let is_recordable = selected.is_some() && !AllowedReuse::of(response.headers()).is_private;
        let variant = selected.unwrap_or_else(Variant::only);
        let state = |observation| ProbeAnswer::State {
            observation,
            is_recordable,
        };
        let present = |variant, tag| {
            state(Observation::Present {
                variant,
                tag,
                last_modified,
            })
        };
        Ok(match response.status() {
            StatusCode::OK => {
                let tagged = TaggedResponse::of(&self.shared, response).await;
                let long = tagged.too_long(&variant).filter(|_| is_recordable);
                let of_revision = long.and_then(|long| match source {
                    TagSource::Recorded(version) => long.recognize(version?.tag(&variant)).cloned(),
                    TagSource::Written(revision) => long.tag(revision),
                });
                let tag = of_revision.or(tagged.tag);
                present(variant, tag)
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => state(Observation::Absent),
            status if status.is_success() && status != StatusCode::PARTIAL_CONTENT => {
                present(variant, own_tag(response.headers()))
            }
            // The resource exists, but can't be read, or not here: no tag can match.
            StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER => present(variant, None),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                ProbeAnswer::PassOn(response.map(ResponseBody::inner))
            }
            status if status.is_client_error() => {
                ProbeAnswer::PassOn(response.map(ResponseBody::inner))
            }
            _ => ProbeAnswer::Nothing,
        })
    }
}

/// Returns the recorded variant with a tag that the conditions name.
fn named_variant<'a>(conditions: &Preconditions, version: &'a Version) -> Option<&'a Variant> {
    let lists = [&conditions.if_match, &conditions.if_none_match]
        .into_iter()
        .flatten();
    let tags = lists.filter_map(|list| {
        if let TagList::Tags(tags) = list {
            Some(tags)
        } else {
            None
        }
    });
    tags.flatten().find_map(|tag| version.variant_of(tag))
}

/// Header fields that describe the content of the write, or would make the probe a write.
const WRITE_FIELDS: [HeaderName; 18] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    EXPECT,
    RANGE,
    TRAILER,
    TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];
