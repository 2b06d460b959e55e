//! 304 from memory, without running the inner service.
//!
//! The client must have the current representation, and that must be certain: the register has the version that the
//! remembered response represents, and either all changes go through the register or the response is still fresh.

use std::slice;
use std::sync::Arc;

use http::header::{AGE, ETAG};
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::{self, Validators, Verdict};
use ifmatch_register::Key;

use crate::body::ResponseBody;
use crate::memory::RememberedHead;
use crate::read::cache_control::demands_origin;
use crate::read::compressed_tag;
use crate::read::dates::DatedVersion;
use crate::read::request::{BaselineState, ReadBaseline};
use crate::responses;
use crate::shared::LayerState;

/// A read's lookup in memory.
#[derive(Debug)]
pub(crate) struct MemoryLookup {
    pub(crate) key: Key,
    /// The start of the request, by the time that deadlines are compared with.
    at: Timestamp,
    /// The time of day then.
    wall: Timestamp,
    hit: Option<MemoryHit>,
    /// The date of the version that the response may have.
    dated: Option<Arc<DatedVersion>>,
}

/// The remembered response that a request selects.
#[derive(Debug)]
struct MemoryHit {
    remembered: Arc<RememberedHead>,
    /// The tag to send, where it differs from the recorded one.
    shown: Option<EntityTag>,
    /// `true` if the response is 304 as long as the version is current.
    is_match: bool,
}

/// The result of a lookup.
pub(crate) enum LookupResult<T: Body> {
    NotModified(Response<ResponseBody<T>>),
    /// The inner service must run.
    Run(ReadBaseline),
}

impl MemoryLookup {
    pub(crate) fn new(shared: &LayerState, key: Key, head: &Parts) -> Self {
        let (at, wall) = (shared.now(), shared.wall());
        let hit = if shared.config.is_shareable(head) {
            MemoryHit::find(shared, &key, head, at, wall)
        } else {
            None
        };
        let dated = shared.dates.find(&key, head, at);
        Self {
            key,
            at,
            wall,
            hit,
            dated,
        }
    }

    /// Returns the result if it is certain without waiting for the register.
    pub(crate) fn result_now<T: Body>(&self, shared: &LayerState) -> Option<LookupResult<T>> {
        self.result_of_hit(shared)
            .or_else(|| self.result_with_date())
    }

    /// Returns the baseline of a read that doesn't ask the register, unless the register could confirm a 304.
    fn result_with_date<T: Body>(&self) -> Option<LookupResult<T>> {
        let dated = self
            .dated
            .as_ref()
            .filter(|_| !self.hit.as_ref().is_some_and(|hit| hit.is_match))?;
        let state = BaselineState::Dated(Arc::clone(dated));
        Some(LookupResult::Run(ReadBaseline {
            at: self.at,
            wall: self.wall,
            state,
        }))
    }

    fn result_of_hit<T: Body>(&self, shared: &LayerState) -> Option<LookupResult<T>> {
        let hit = self.hit.as_ref()?;
        // The time of a register's engine may have gone back since.
        let is_recent = || {
            let checked = hit.remembered.checked_at();
            checked <= self.at && checked.saturating_add(shared.config.max_staleness) > self.at
        };
        if hit.is_match && is_recent() {
            return Some(LookupResult::NotModified(hit.not_modified(shared, self.at)));
        }
        self.check_revision(shared, hit)
    }

    /// Returns the result if the register knows the revision without waiting, and the remembered version is current.
    fn check_revision<T: Body>(
        &self,
        shared: &LayerState,
        hit: &MemoryHit,
    ) -> Option<LookupResult<T>> {
        let revision = shared.driver.revision_at_once(&self.key)?;
        if !hit.remembered.is_current_at(revision) {
            return None;
        }
        hit.remembered.confirm(self.at, revision);
        if hit.is_match {
            return Some(LookupResult::NotModified(hit.not_modified(shared, self.at)));
        }
        let state = BaselineState::Current(Arc::clone(&hit.remembered), revision);
        Some(LookupResult::Run(ReadBaseline {
            at: self.at,
            wall: self.wall,
            state,
        }))
    }

    /// Returns the result, loading the record if necessary.
    pub(crate) async fn result<T: Body>(&self, shared: &LayerState) -> LookupResult<T> {
        if let Some(cached) = self
            .hit
            .as_ref()
            .and_then(|hit| self.check_revision(shared, hit))
        {
            return cached;
        }
        if let Some(cached) = self.result_with_date() {
            return cached;
        }
        let record = Box::pin(shared.for_read(shared.driver.load(&self.key))).await;
        if let (Some(hit), Some(record)) = (&self.hit, &record)
            && let Some(version) = record.settled(self.at)
            && hit.is_match
            && hit.remembered.generation == version.generation()
        {
            hit.remembered.confirm(self.at, record.revision());
            return LookupResult::NotModified(hit.not_modified(shared, self.at));
        }
        let state = record.map_or(BaselineState::Unavailable, |record| {
            BaselineState::Record(Box::new(record))
        });
        LookupResult::Run(ReadBaseline {
            at: self.at,
            wall: self.wall,
            state,
        })
    }
}

impl MemoryHit {
    fn find(
        shared: &LayerState,
        key: &Key,
        head: &Parts,
        at: Timestamp,
        wall: Timestamp,
    ) -> Option<Self> {
        let remembered = shared
            .memory
            .get(key)?
            .find(head.uri.query(), &head.headers)
            .cloned()?;
        let is_fresh = (remembered.born..remembered.fresh_until).contains(&at);
        let is_usable = shared.is_authoritative() || (is_fresh && !demands_origin(&head.headers));
        let shown = shared
            .config
            .behind_compression
            .then(|| compressed_tag::shown(&remembered.tag, &head.headers));
        let validators = Validators {
            tags: slice::from_ref(shown.as_ref().unwrap_or(&remembered.tag)),
            last_modified: Some(remembered.last_modified).filter(|date| date.has_come(wall)),
        };
        let verdict = precondition::evaluate(&head.headers, &Method::GET, Some(&validators));
        let is_match = is_usable && verdict == Verdict::NotModified;
        Some(Self {
            remembered,
            shown,
            is_match,
        })
    }

    fn not_modified<T: Body>(
        &self,
        shared: &LayerState,
        at: Timestamp,
    ) -> Response<ResponseBody<T>> {
        let mut headers = self.remembered.headers.clone();
        if let Some(shown) = &self.shown {
            headers.insert(ETAG, shown.to_header());
        }
        if !shared.is_authoritative() {
            // It is fresh by its own `Cache-Control` only, so its age counts.
            headers.insert(AGE, self.remembered.born.until(at).as_secs().into());
        }
        responses::not_modified_with(headers)
    }
}
