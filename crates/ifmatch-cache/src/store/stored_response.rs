//! A stored response: its head with the decisions about it, and its body.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::fields::{compact, hop_by_hop};

use crate::body::broadcast::BodyBroadcast;
use crate::body::in_memory::MemoryBody;
use crate::body::on_disk::DiskBody;
use crate::body::parts::BodyParts;
use crate::config::CacheConfig;
use crate::policy::Audience;
use crate::policy::age::{initial_age, unix};
use crate::policy::cache_control::RequestDirectives;
use crate::policy::cdn_cache_control::Governing;
use crate::policy::freshness::{Heuristic, lifetime};
use crate::policy::resource_rules::ResourceRules;
use crate::policy::reuse::{Reuse, Terms};
use crate::policy::storable::{Refusal, is_for_one_client};
use crate::policy::vary::{Selection, Vary};
use crate::policy::{fields, groups, update};

/// Tolerance for responses that seem to have arrived in the future before the clock counts as set back.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// Age of a response with a wrong arrival time. No response is fresh at this age (RFC 9111 §1.2.2).
const UNKNOWN_AGE: Duration = Duration::from_secs(1 << 31);

/// A response in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    pub(crate) meta: Arc<StoredHead>,
    pub(crate) body: StoredBody,
}

/// Keeps the body of a stored response readable.
#[derive(Debug, Default)]
pub(crate) struct OpenBody {
    /// The readers of a body share this handle.
    _file: Option<Arc<File>>,
}

/// The body of a stored response.
#[derive(Clone, Debug)]
pub(crate) enum StoredBody {
    Whole(Arc<MemoryBody>),
    /// The whole body on disk.
    File(Arc<DiskBody>),
    /// Parts of the body.
    Parts(Arc<BodyParts>),
    /// Still arriving.
    Broadcast(Arc<BodyBroadcast>),
}

/// The head of a stored response.
#[derive(Clone, Debug)]
pub(crate) struct StoredHead {
    pub(crate) status: StatusCode,
    /// Without hop-by-hop fields, fields that must not be stored, `Age` and `Content-Length`.
    pub(crate) headers: HeaderMap,
    pub(crate) secondary_key: SecondaryKey,
    pub(crate) terms: Terms,
    pub(crate) groups: Box<[Box<str>]>,
    pub(crate) tag: Option<EntityTag>,
    pub(crate) last_modified: Option<HttpDate>,
    /// The modification date, or the date used in its place (RFC 9111 §4.3.2).
    pub(crate) comparable_date: Option<HttpDate>,
    /// Ordinal of the request to the origin.
    pub(crate) began: u64,
    used: LastUse,
    pub(super) received: Timestamp,
    pub(super) initial_age: Duration,
    /// The fields of a 304, set at the first one.
    unmodified: OnceLock<Box<HeaderMap>>,
}

/// The parts of a head that are saved on disk.
pub(super) struct SavedHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) secondary_key: SecondaryKey,
    pub(super) terms: Terms,
    pub(super) groups: Box<[Box<str>]>,
    pub(super) began: u64,
    pub(super) received: Timestamp,
    pub(super) initial_age: Duration,
}

/// Ordinal of the last use, if any.
#[derive(Debug, Default)]
struct LastUse(AtomicU64);

impl Clone for LastUse {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Selects the requests for the URI that the response answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecondaryKey {
    pub(crate) vary: Vary,
    pub(crate) selection: Selection,
    /// The [implicit key](crate::request::CacheRequest::implicit_key) of the request.
    pub(crate) implicit_key: Box<str>,
}

/// The context in which a response arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalContext<'a> {
    /// The header fields of the client's request.
    pub(crate) request: &'a HeaderMap,
    pub(crate) implicit_key: &'a str,
    pub(crate) audience: Audience,
    /// Ordinal of the request to the origin.
    pub(crate) began: u64,
    /// Time when that request was sent.
    pub(crate) requested: Timestamp,
    /// Time when the head of its response arrived.
    pub(crate) received: Timestamp,
    pub(crate) heuristic: Option<Heuristic>,
    /// Rules for the resource.
    pub(crate) rules: &'a ResourceRules,
    /// Default time for use while the response is revalidated.
    pub(crate) while_revalidate: Duration,
    /// Default time for use in place of an error.
    pub(crate) if_error: Duration,
    /// Further fields that must not be stored.
    pub(crate) unstored: &'a [HeaderName],
    /// `true` to revalidate before each use.
    pub(crate) always_validate: bool,
}

impl<'a> ArrivalContext<'a> {
    /// Creates the context of a response to a client's request, in a cache with this configuration.
    pub(crate) fn new(
        config: &'a CacheConfig,
        request: &'a Parts,
        implicit_key: &'a str,
        began: u64,
        requested: Timestamp,
        received: Timestamp,
    ) -> Self {
        Self {
            request: &request.headers,
            implicit_key,
            audience: config.audience,
            began,
            requested,
            received,
            heuristic: config.heuristic,
            rules: ResourceRules::of(&request.extensions),
            while_revalidate: config.stale_while_revalidate,
            if_error: config.stale_if_error,
            unstored: &config.unstored,
            always_validate: config.always_validate,
        }
    }

    /// Returns the `Date` of a response that states none (RFC 9110 §6.6.1).
    fn date(&self) -> HeaderValue {
        HttpDate::from_unix(unix(self.received)).to_header()
    }
}

impl StoredHead {
    /// Creates the head of a storable response. A 206 is stored as a part of the corresponding 200.
    pub(crate) fn new(
        status: StatusCode,
        response: &HeaderMap,
        arrival: &ArrivalContext<'_>,
    ) -> Self {
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        let status = if is_part { StatusCode::OK } else { status };
        let initial_age = initial_age(response, arrival.requested, arrival.received);
        let mut headers = response.clone();
        if is_part {
            headers.remove(CONTENT_RANGE);
        }
        if !headers.contains_key(DATE) {
            headers.insert(DATE, arrival.date());
        }
        Self::with(status, headers, initial_age, arrival)
    }

    /// Returns the head updated by a 304 or a response to HEAD with these header fields.
    pub(crate) fn freshened(&self, newer: &HeaderMap, arrival: &ArrivalContext<'_>) -> Self {
        let mut headers = self.headers.clone();
        update::freshen(&mut headers, newer);
        if !newer.contains_key(DATE) {
            headers.insert(DATE, arrival.date());
        }
        let mut dated = newer.clone();
        dated.insert(DATE, headers[DATE].clone());
        let initial_age = initial_age(&dated, arrival.requested, arrival.received);
        Self::with(self.status, headers, initial_age, arrival)
    }

    /// Returns the head marked as outdated.
    pub(crate) fn outdated(&self) -> Self {
        Self {
            terms: Terms::outdated(),
            ..self.clone()
        }
    }

    /// Returns the head of a response that may have been invalidated since.
    pub(crate) fn unconfirmed(&self) -> Self {
        Self {
            terms: self.terms.unconfirmed(),
            ..self.clone()
        }
    }

    /// Returns the head as a soft purge leaves it: stale. Returns `None` if it was purged before.
    pub(crate) fn purged(&self, now: Timestamp) -> Option<Self> {
        let terms = &self.terms;
        terms.stale_since.is_none().then(|| Self {
            terms: terms.purged(self.age(now)),
            ..self.clone()
        })
    }

    fn with(
        status: StatusCode,
        mut headers: HeaderMap,
        initial_age: Duration,
        arrival: &ArrivalContext<'_>,
    ) -> Self {
        let governing = Governing::of(&headers, arrival.audience);
        let ArrivalContext {
            request,
            received,
            heuristic,
            rules,
            while_revalidate,
            if_error,
            ..
        } = *arrival;
        let lifetime = lifetime(
            request,
            status,
            &headers,
            &governing,
            received,
            initial_age,
            heuristic,
            rules,
        );
        let vary = Vary::of(&headers).unwrap_or_default();
        hop_by_hop::remove(&mut headers);
        for name in governing
            .directives
            .unstored_fields()
            .chain(&[AGE, CONTENT_LENGTH])
            .chain(arrival.unstored)
        {
            headers.remove(name);
        }
        let windows = (
            rules.while_revalidate.unwrap_or(while_revalidate),
            rules.if_error.unwrap_or(if_error),
        );
        let terms =
            Terms::new(&governing, lifetime).with_default_windows(&governing, windows.0, windows.1);
        let last_modified = fields::date(&headers, LAST_MODIFIED);
        let groups = groups::of(&headers);
        let always_validate = arrival.always_validate || terms.always_validate || groups.is_none();
        let tag = headers
            .get(ETAG)
            .and_then(|tag| EntityTag::parse(tag.as_bytes()).ok());
        Self {
            status,
            groups: groups.unwrap_or_default().into(),
            last_modified,
            comparable_date: last_modified.or_else(|| fields::date(&headers, DATE)),
            headers: compact(&headers, ADDED_FIELDS),
            secondary_key: SecondaryKey {
                selection: vary.select(arrival.request),
                vary,
                implicit_key: arrival.implicit_key.into(),
            },
            terms: Terms {
                always_validate,
                ..terms
            },
            tag,
            began: arrival.began,
            used: LastUse::default(),
            received: arrival.received,
            initial_age,
            unmodified: OnceLock::new(),
        }
    }

    /// Returns a head read from disk.
    pub(super) fn restored(saved: SavedHead) -> Self {
        let SavedHead {
            status,
            headers,
            secondary_key,
            terms,
            groups,
            began,
            received,
            initial_age,
        } = saved;
        let last_modified = fields::date(&headers, LAST_MODIFIED);
        Self {
            status,
            groups,
            tag: headers
                .get(ETAG)
                .and_then(|tag| EntityTag::parse(tag.as_bytes()).ok()),
            last_modified,
            comparable_date: last_modified.or_else(|| fields::date(&headers, DATE)),
            headers: compact(&headers, ADDED_FIELDS),
            secondary_key,
            terms,
            began,
            used: LastUse::default(),
            received,
            initial_age,
            unmodified: OnceLock::new(),
        }
    }

    /// Returns the fields of a 304 for this response.
    pub(crate) fn unmodified(&self) -> &HeaderMap {
        self.unmodified.get_or_init(|| {
            let mut headers = self.headers.clone();
            retain_304_headers(&mut headers);
            Box::new(headers)
        })
    }

    /// Records a use. Skips the write if the ordinal hasn't changed.
    pub(crate) fn note_use(&self, ordinal: u64) {
        if self.used.0.load(Ordering::Relaxed) != ordinal {
            self.used.0.store(ordinal, Ordering::Relaxed);
        }
    }

    /// Returns the ordinal of the last use, or of the request to the origin.
    pub(crate) fn last_used(&self) -> u64 {
        self.used.0.load(Ordering::Relaxed).max(self.began)
    }

    /// Returns the age (RFC 9111 §4.2.3). If the response arrived in the future, the clock was set back.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        if now.until(self.received) > CLOCK_TOLERANCE {
            return UNKNOWN_AGE;
        }
        self.initial_age.saturating_add(self.received.until(now))
    }

    /// Returns `true` if the origin can validate the response.
    pub(crate) fn has_validator(&self) -> bool {
        self.headers.contains_key(ETAG) || self.headers.contains_key(LAST_MODIFIED)
    }

    /// Returns `true` if a request selects the response.
    pub(crate) fn is_selected(&self, request: &HeaderMap, implicit_key: &str) -> bool {
        let key = &self.secondary_key;
        &*key.implicit_key == implicit_key && key.selection == key.vary.select(request)
    }

    /// Returns `true` if a newer response that must not be stored says nothing about this one: this one is fresh, and the newer
    /// one is about its own client.
    pub(crate) fn withstands(
        &self,
        status: StatusCode,
        refusal: Option<Refusal>,
        now: Timestamp,
    ) -> bool {
        is_for_one_client(status, refusal)
            && self
                .terms
                .reuse(&RequestDirectives::default(), self.age(now))
                == Reuse::Fresh
    }

    /// Returns `true` if the response can ever be used: it has a lifetime, can be validated, or may be used stale.
    pub(crate) fn is_useful(&self) -> bool {
        let Terms {
            lifetime,
            while_revalidate,
            if_error,
            ..
        } = &self.terms;
        self.has_validator()
            || !(lifetime.is_zero() && while_revalidate.is_zero() && if_error.is_zero())
    }

    /// Returns the strong tag, if any. Parts with equal strong tags may be joined.
    pub(crate) fn strong_tag(&self) -> Option<&EntityTag> {
        self.tag.as_ref().filter(|tag| !tag.is_weak())
    }

    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            name.as_str().len() + value.len() + PER_FIELD
        };
        let groups: usize = self
            .groups
            .iter()
            .map(|name| name.len() + size_of::<Box<str>>())
            .sum();
        size_of::<Self>()
            + self.headers.iter().map(field).sum::<usize>()
            + self.secondary_key.size()
            + groups
    }
}

impl SecondaryKey {
    fn size(&self) -> usize {
        self.selection.size() + self.implicit_key.len() + size_of_val(self.vary.names())
    }
}

/// Approximate overhead of a field in a header map.
const PER_FIELD: usize = 128;

impl StoredResponse {
    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let body = match &self.body {
            StoredBody::Whole(content) => content.len,
            StoredBody::File(file) => file.size(),
            StoredBody::Parts(parts) => parts.size(),
            StoredBody::Broadcast(_) => 0,
        };
        body.saturating_add(self.meta.size() as u64 + size_of::<MemoryBody>() as u64)
    }

    /// Returns `true` if both answer the same requests.
    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
        self.meta.secondary_key == other.meta.secondary_key
    }

    /// Returns `true` if the body is available. Accesses the file system for a file.
    pub(crate) fn exists(&self) -> bool {
        match &self.body {
            StoredBody::File(file) => file.exists(),
            StoredBody::Whole(_) | StoredBody::Parts(_) | StoredBody::Broadcast(_) => true,
        }
    }

    /// Keeps the body readable, even if its file is deleted. Returns `None` if it is gone. Accesses the file system for a file.
    pub(crate) fn open(&self) -> Option<OpenBody> {
        let StoredBody::File(file) = &self.body else {
            return Some(OpenBody::default());
        };
        let open = file.exists().then(|| file.handle()).flatten()?;
        Some(OpenBody { _file: Some(open) })
    }

    /// Returns `true` unless the body is known to be gone.
    pub(crate) fn is_there(&self) -> bool {
        match &self.body {
            StoredBody::File(file) => file.is_there(),
            StoredBody::Whole(_) | StoredBody::Parts(_) | StoredBody::Broadcast(_) => true,
        }
    }

    /// Returns `true` if the response has `Vary`.
    pub(crate) fn varies(&self) -> bool {
        !self.meta.secondary_key.vary.names().is_empty()
    }

    /// Returns `true` if a request selects the response.
    pub(crate) fn is_selected(&self, request: &HeaderMap, implicit_key: &str) -> bool {
        self.meta.is_selected(request, implicit_key)
    }
}

/// Capacity for fields added to each response, so its copy needn't grow: `Age`, `Content-Length`, `Cache-Status`,
/// and the server's.
const ADDED_FIELDS: usize = 6;
