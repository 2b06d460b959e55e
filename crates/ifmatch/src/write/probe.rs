//! Asking the resource for its current state, before a conditional write whose conditions nobody can evaluate yet.

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

use super::{Answer, Writing};
use crate::body::ResponseBody;
use crate::read::request;
use crate::read::tag::{Tagged, own_tag};
use crate::read::vary::{Vary, ask_for};
use crate::responses;
use crate::shared::Inner;

/// What came of a probe.
pub(crate) enum Probed<S: Inner<B>, B> {
    /// The state.
    Seen(Observed),
    /// Another write is in flight, whose effect a probe might see or miss.
    InFlight,
    /// The write cannot go on; this is the answer to it.
    Answer(Answer<S, B>),
}

/// What a response to a probe says.
enum Said<T: Body> {
    State(Observation),
    /// The client gets it: whoever may not read may not compare either.
    Pass(Response<ResponseBody<T>>),
    Nothing,
}

impl<R: Register, C: Clock> Writing<R, C> {
    /// Runs the inner service with GET. Where the conditions name the tag of a known representation, it asks for that
    /// one; else for the one that the write's own header fields select.
    pub(crate) async fn probe<S, B>(&self, inner: &mut S) -> Probed<S, B>
    where
        S: Inner<B>,
        B: Default,
    {
        let at = self.shared.now();
        let Ok(record) = self.shared.driver.load(&self.key).await else {
            return Probed::Answer(Ok(responses::unavailable()));
        };
        let Some(snapshot) = record.snapshot(at) else { return Probed::InFlight };
        let head = self.probe_head(record.state(at).version());
        let seen = AssertUnwindSafe(self.look(inner, head)).catch_unwind();
        let limit = self.shared.driver.clock().sleep(self.shared.config.write_timeout);
        let seen = match select(pin!(seen), pin!(limit)).await {
            Either::Left((Ok(seen), _)) => seen,
            Either::Left((Err(_), _)) | Either::Right(_) => Ok(Said::Nothing),
        };
        match seen {
            Ok(Said::State(observation)) => {
                let authority = self.shared.config.authority;
                Probed::Seen(Observed { snapshot, observation, authority })
            }
            Ok(Said::Pass(response)) => Probed::Answer(Ok(response)),
            Ok(Said::Nothing) => Probed::Answer(Ok(responses::unavailable())),
            Err(error) => Probed::Answer(Err(error)),
        }
    }

    fn probe_head(&self, known: Option<&Version>) -> Parts {
        let mut head = self.head.clone();
        head.method = Method::GET;
        request::strip_conditions(&mut head.headers);
        for name in OF_THE_WRITE {
            head.headers.remove(name);
        }
        if let Some(variant) = known.and_then(|version| named_variant(&self.conditions, version)) {
            ask_for(variant, &mut head);
        }
        head
    }

    async fn look<S, B>(&self, inner: &mut S, head: Parts) -> Result<Said<S::Body>, S::Error>
    where
        S: Inner<B>,
        B: Default,
    {
        let variant_of = |vary: Vary| vary.select(head.uri.query(), &head.headers);
        let response = inner.run(Request::from_parts(head.clone(), B::default())).await?;
        let last_modified = HttpDate::from_headers(response.headers(), LAST_MODIFIED);
        let variant = Vary::of(response.headers()).and_then(variant_of).unwrap_or_else(Variant::only);
        let present = |tag| Observation::Present { variant, tag, last_modified };
        Ok(match response.status() {
            StatusCode::OK => Said::State(present(Tagged::of(&self.shared, response).await.tag)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Said::State(Observation::Absent),
            status if status.is_success() && status != StatusCode::PARTIAL_CONTENT => {
                Said::State(present(own_tag(response.headers())))
            }
            // It exists, but cannot be read, or not here: no tag can match it.
            StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER => Said::State(present(None)),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                Said::Pass(response.map(ResponseBody::inner))
            }
            status if status.is_client_error() => Said::Pass(response.map(ResponseBody::inner)),
            _ => Said::Nothing,
        })
    }
}

/// The representation whose tag a condition names.
fn named_variant<'a>(conditions: &Preconditions, version: &'a Version) -> Option<&'a Variant> {
    let lists = [&conditions.if_match, &conditions.if_none_match].into_iter().flatten();
    let tags = lists.filter_map(|list| if let TagList::Tags(tags) = list { Some(tags) } else { None });
    tags.flatten().find_map(|tag| version.variant_of(tag))
}

/// What is said of the write's content, or would make the probe a write.
const OF_THE_WRITE: [HeaderName; 18] = [
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
