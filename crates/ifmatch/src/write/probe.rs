//! Probing: asking the inner service for the current state before a write with conditions that the record cannot decide.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, EXPECT,
    LAST_MODIFIED, RANGE, TRAILER, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::command::{Observation, Observed};
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Variant, Version};
use ifmatch_core::tag::TagList;
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use super::request::{WriteContext, WriteResult};
use crate::body::ResponseBody;
use crate::inner::InnerService;
use crate::read::request::strip_conditions;
use crate::read::tag::{Tagged, own_tag};
use crate::read::vary::{Vary, select_variant};
use crate::responses;

/// The result of a probe.
pub(crate) enum Probe<S: InnerService<B>, B> {
    Observed(Observed),
    /// Another write is in flight, and a probe might see its effect or miss it.
    InFlight,
    /// The write must not go on. This is its result.
    Failed(WriteResult<S, B>),
}

/// The meaning of a response to a probe.
enum Answer<T: Body> {
    State(Observation),
    /// The client gets the response: a client that may not read must not learn the result of a comparison either.
    PassOn(Response<ResponseBody<T>>),
    Nothing,
}

impl<R: Register, C: Clock> WriteContext<R, C> {
    /// Runs the inner service with GET. If the conditions name the tag of a recorded variant, requests that variant;
    /// otherwise the one that the header fields of the write select.
    pub(crate) async fn probe<S, B>(&self, inner: &mut S) -> Probe<S, B>
    where
        S: InnerService<B>,
        B: Default,
    {
        let at = self.shared.now();
        let Ok(record) = self.shared.driver.load(&self.key).await else {
            return Probe::Failed(Ok(responses::unavailable()));
        };
        let Some(snapshot) = record.snapshot(at) else { return Probe::InFlight };
        let head = self.probe_head(record.state(at).version());
        let answer = AssertUnwindSafe(self.get(inner, head)).catch_unwind();
        let timeout = self.shared.driver.clock().sleep(self.shared.config.write_timeout);
        let answer = match select(pin!(answer), pin!(timeout)).await {
            Either::Left((Ok(answer), _)) => answer,
            Either::Left((Err(_), _)) | Either::Right(_) => Ok(Answer::Nothing),
        };
        match answer {
            Ok(Answer::State(observation)) => {
                let authority = self.shared.config.authority;
                Probe::Observed(Observed::new(snapshot, observation, authority))
            }
            Ok(Answer::PassOn(response)) => Probe::Failed(Ok(response)),
            Ok(Answer::Nothing) => Probe::Failed(Ok(responses::unavailable())),
            Err(error) => Probe::Failed(Err(error)),
        }
    }

    fn probe_head(&self, recorded: Option<&Version>) -> Parts {
        let mut head = self.head.clone();
        head.method = Method::GET;
        strip_conditions(&mut head.headers);
        for name in WRITE_FIELDS {
            head.headers.remove(name);
        }
        if let Some(variant) = recorded.and_then(|version| named_variant(&self.conditions, version)) {
            select_variant(variant, &mut head);
        }
        head
    }

    async fn get<S, B>(&self, inner: &mut S, head: Parts) -> Result<Answer<S::Body>, S::Error>
    where
        S: InnerService<B>,
        B: Default,
    {
        let variant_of = |vary: Vary| vary.select(head.uri.query(), &head.headers);
        let response = inner.run(Request::from_parts(head.clone(), B::default())).await?;
        let last_modified = HttpDate::from_headers(response.headers(), LAST_MODIFIED);
        let variant = Vary::of(response.headers()).and_then(variant_of).unwrap_or_else(Variant::only);
        let present = |tag| Observation::Present { variant, tag, last_modified };
        Ok(match response.status() {
            StatusCode::OK => Answer::State(present(Tagged::of(&self.shared, response).await.tag)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Answer::State(Observation::Absent),
            status if status.is_success() && status != StatusCode::PARTIAL_CONTENT => {
                Answer::State(present(own_tag(response.headers())))
            }
            // The resource exists, but cannot be read, or not here: no tag can match.
            StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER => Answer::State(present(None)),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                Answer::PassOn(response.map(ResponseBody::inner))
            }
            status if status.is_client_error() => Answer::PassOn(response.map(ResponseBody::inner)),
            _ => Answer::Nothing,
        })
    }
}

/// Returns the recorded variant with a tag that the conditions name.
fn named_variant<'a>(conditions: &Preconditions, version: &'a Version) -> Option<&'a Variant> {
    let lists = [&conditions.if_match, &conditions.if_none_match].into_iter().flatten();
    let tags = lists.filter_map(|list| if let TagList::Tags(tags) = list { Some(tags) } else { None });
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
