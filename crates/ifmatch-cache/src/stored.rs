//! A stored response: its head with all that was decided about it, and its body.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::fields::hop_by_hop;
use ifmatch_core::fields::not_modified::retain_304_headers;

use crate::broadcast::Broadcast;
use crate::content::{Content, Part};
use crate::file::FileBody;
use crate::policy::age::{initial_age, unix};
use crate::policy::cdn_cache_control::Governing;
use crate::policy::freshness::{Heuristic, lifetime};
use crate::policy::reuse::Terms;
use crate::policy::vary::{Selection, Vary};
use crate::policy::{fields, groups, update};

/// How much later than now a response may have come without a step of the clock.
const STEP: Duration = Duration::from_secs(1);
/// The age of a response that came at a time by a clock that was wrong: nothing is fresh at that age (RFC 9111 §1.2.2).
const UNKNOWN_AGE: Duration = Duration::from_secs(1 << 31);

/// A response that requests can be answered with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) meta: Arc<Meta>,
    pub(crate) body: Body,
}

/// The body of a stored response.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Whole(Arc<Content>),
    Part(Arc<Part>),
    /// All of it, in a file.
    File(Arc<FileBody>),
    /// It is still coming.
    Broadcast(Arc<Broadcast>),
}

/// The head of a stored response.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) status: StatusCode,
    /// Without what ends here, what must not be stored, `Age` and `Content-Length`.
    pub(crate) headers: HeaderMap,
    pub(crate) selected: Selected,
    pub(crate) terms: Terms,
    pub(crate) groups: Box<[Box<str>]>,
    pub(crate) tag: Option<EntityTag>,
    pub(crate) last_modified: Option<HttpDate>,
    /// The modification date, or what stands for it where there is none (RFC 9111 §4.3.2).
    pub(crate) comparable_date: Option<HttpDate>,
    /// The ordinal of the request that it answers.
    pub(crate) began: u64,
    used: Used,
    received: Timestamp,
    initial_age: Duration,
    /// The fields of a 304, once somebody has asked for one.
    unmodified: OnceLock<Box<HeaderMap>>,
}

/// The ordinal at which a response was asked for last, if ever.
#[derive(Debug, Default)]
struct Used(AtomicU64);

impl Clone for Used {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Which requests for the URI the response is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) vary: Vary,
    pub(crate) by: Selection,
    /// How the request spelled the target, and what it said in fields that origins are known to obey without saying so.
    pub(crate) implicit: Box<str>,
}

/// When and to what a response came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came<'a> {
    /// The header fields of the client's request.
    pub(crate) request: &'a HeaderMap,
    pub(crate) implicit: &'a str,
    pub(crate) began: u64,
    pub(crate) requested: Timestamp,
    pub(crate) received: Timestamp,
    pub(crate) heuristic: Option<Heuristic>,
    /// What is not to be stored, besides what the response itself says.
    pub(crate) unstored: &'a [HeaderName],
    /// The origin is to be asked before each use.
    pub(crate) always_validate: bool,
}

impl Meta {
    /// The head of a response that may be stored. A 206 is stored as the 200 that it is a part of.
    pub(crate) fn new(status: StatusCode, response: &HeaderMap, came: &Came<'_>) -> Self {
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        let status = if is_part { StatusCode::OK } else { status };
        let initial_age = initial_age(response, came.requested, came.received);
        let mut headers = response.clone();
        if is_part {
            headers.remove(CONTENT_RANGE);
        }
        if !headers.contains_key(DATE) {
            headers.insert(DATE, HttpDate::from_unix(unix(came.received)).to_header());
        }
        Self::with(status, headers, initial_age, came)
    }

    /// The head after a 304, or a response to HEAD, with these header fields.
    pub(crate) fn freshened(&self, newer: &HeaderMap, came: &Came<'_>) -> Self {
        let mut headers = self.headers.clone();
        update::freshen(&mut headers, newer);
        if !newer.contains_key(DATE) {
            headers.insert(DATE, HttpDate::from_unix(unix(came.received)).to_header());
        }
        let mut dated = newer.clone();
        dated.insert(DATE, headers[DATE].clone());
        let initial_age = initial_age(&dated, came.requested, came.received);
        Self::with(self.status, headers, initial_age, came)
    }

    /// The head of a response that is known to be outdated.
    pub(crate) fn outdated(&self) -> Self {
        Self { terms: self.terms.outdated(), ..self.clone() }
    }

    fn with(status: StatusCode, mut headers: HeaderMap, initial_age: Duration, came: &Came<'_>) -> Self {
        let governing = Governing::of(&headers);
        let lifetime = lifetime(came.request, status, &headers, &governing, came.received, came.heuristic);
        let vary = Vary::of(&headers).unwrap_or_default();
        hop_by_hop::remove(&mut headers);
        for name in governing.directives.unstored_fields().chain(&[AGE, CONTENT_LENGTH]).chain(came.unstored) {
            headers.remove(name);
        }
        let terms = Terms::new(&governing, lifetime);
        let last_modified = fields::date(&headers, LAST_MODIFIED);
        let tag = headers.get(ETAG).and_then(|tag| EntityTag::parse(tag.as_bytes()).ok());
        Self {
            status,
            groups: groups::names(&headers, &groups::CACHE_GROUPS).into(),
            last_modified,
            comparable_date: last_modified.or_else(|| fields::date(&headers, DATE)),
            headers: compact(&headers),
            selected: Selected { by: vary.select(came.request), vary, implicit: came.implicit.into() },
            terms: Terms { always_validate: came.always_validate || terms.always_validate, ..terms },
            tag,
            began: came.began,
            used: Used::default(),
            received: came.received,
            initial_age,
            unmodified: OnceLock::new(),
        }
    }

    /// The fields of a 304 in the place of the response.
    pub(crate) fn unmodified(&self) -> &HeaderMap {
        self.unmodified.get_or_init(|| {
            let mut headers = self.headers.clone();
            retain_304_headers(&mut headers);
            Box::new(headers)
        })
    }

    /// Notes that a client has asked for it. What many ask for at the same ordinal is written once.
    pub(crate) fn note_use(&self, ordinal: u64) {
        if self.used.0.load(Ordering::Relaxed) != ordinal {
            self.used.0.store(ordinal, Ordering::Relaxed);
        }
    }

    /// The ordinal at which it was asked for last, or stored.
    pub(crate) fn last_used(&self) -> u64 {
        self.used.0.load(Ordering::Relaxed).max(self.began)
    }

    /// How old the response is (RFC 9111 §4.2.3). One that came later than now came before the clock was set back.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        if now.until(self.received) > STEP {
            return UNKNOWN_AGE;
        }
        self.initial_age.saturating_add(self.received.until(now))
    }

    /// Whether it can ever answer a request: it has a lifetime, or can be validated, or may be used stale.
    pub(crate) fn is_useful(&self) -> bool {
        let Terms { lifetime, while_revalidate, if_error, .. } = &self.terms;
        let validated = self.headers.contains_key(ETAG) || self.headers.contains_key(LAST_MODIFIED);
        validated || !(lifetime.is_zero() && while_revalidate.is_zero() && if_error.is_zero())
    }

    /// The strong tag, if it has one: parts may be joined then.
    pub(crate) fn strong_tag(&self) -> Option<&EntityTag> {
        self.tag.as_ref().filter(|tag| !tag.is_weak())
    }

    /// The bytes of memory it takes, about.
    pub(crate) fn size(&self) -> usize {
        let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + PER_FIELD;
        let groups: usize = self.groups.iter().map(|name| name.len() + size_of::<Box<str>>()).sum();
        size_of::<Self>() + self.headers.iter().map(field).sum::<usize>() + self.selected.size() + groups
    }
}

impl Selected {
    fn size(&self) -> usize {
        self.by.size() + self.implicit.len() + size_of_val(self.vary.names())
    }
}

/// What a header map takes for each field, besides the texts.
const PER_FIELD: usize = 128;

impl Stored {
    /// The bytes of memory it takes, about.
    pub(crate) fn size(&self) -> u64 {
        let body = match &self.body {
            Body::Whole(content) => content.len,
            Body::Part(part) => part.size(),
            Body::File(file) => file.size(),
            Body::Broadcast(_) => 0,
        };
        body.saturating_add(self.meta.size() as u64 + size_of::<Content>() as u64)
    }

    /// Whether two are for the same requests.
    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
        self.meta.selected == other.meta.selected
    }

    /// Whether its body can be had, asking the system for a file.
    pub(crate) fn exists(&self) -> bool {
        match &self.body {
            Body::File(file) => file.exists(),
            Body::Whole(_) | Body::Part(_) | Body::Broadcast(_) => true,
        }
    }

    /// Whether its body can be had, as far as is known.
    pub(crate) fn is_there(&self) -> bool {
        match &self.body {
            Body::File(file) => file.is_there(),
            Body::Whole(_) | Body::Part(_) | Body::Broadcast(_) => true,
        }
    }

    /// Whether it is for some requests only.
    pub(crate) fn varies(&self) -> bool {
        !self.meta.selected.vary.names().is_empty()
    }

    /// Whether a request selects it.
    pub(crate) fn is_selected(&self, request: &HeaderMap, implicit: &str) -> bool {
        let selected = &self.meta.selected;
        let said = || selected.vary.select(request);
        &*selected.implicit == implicit && selected.vary.matches(&selected.by, &self.meta.headers, request, &said())
    }
}

/// How many fields an answer has besides: its copy then need not be made larger. `Age`, `Content-Length`, `Cache-Status`, and
/// what a server adds.
const TOLD: usize = 6;

/// The same header fields, with their values in one piece of memory: they may be slices of a much larger buffer.
fn compact(headers: &HeaderMap) -> HeaderMap {
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers.values().for_each(|value| text.extend_from_slice(value.as_bytes()));
    let mut text: Bytes = text.freeze();
    let mut copy = HeaderMap::with_capacity(headers.keys_len() + TOLD);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_maybe_shared(text.split_to(value.len())) {
            copy.append(name, value);
        }
    }
    // A copy of the copy has room in its index only: that of the fields themselves would be most of a small response.
    copy.clone()
}
