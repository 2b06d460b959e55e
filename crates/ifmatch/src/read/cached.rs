//! Answering 304 from memory, without running the inner service.

use std::slice;
use std::sync::Arc;

use http::header::{AGE, ETAG};
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::{self, Validators, Verdict};
use ifmatch_register::{Key, Register};
use ifmatch_runtime::Clock;

use crate::body::ResponseBody;
use crate::memory::Known;
use crate::read::cache_control::wants_origin;
use crate::read::compressed_tag;
use crate::read::request::is_anonymous;
use crate::read::{Confirmed, Found, Looked};
use crate::responses;
use crate::shared::Shared;

/// A read at its beginning.
///
/// It is answered 304 if the client has the current representation, and this is known for certain: the register has the
/// same version, and either all changes go through it or the response itself said that it stays fresh.
#[derive(Debug)]
pub(crate) struct Sought {
    /// The resource.
    pub(crate) key: Key,
    /// Whether what is answered may be told to others.
    pub(crate) anonymous: bool,
    at: Timestamp,
    /// Time of day at the start of the request.
    wall: Timestamp,
    remembered: Option<Remembered>,
}

/// What is remembered of the representation that a request selects.
#[derive(Debug)]
struct Remembered {
    known: Arc<Known>,
    /// The tag that the client is to see, where it is another one.
    shown: Option<EntityTag>,
    /// Whether it makes a 304 of the request.
    suffices: bool,
}

impl Sought {
    pub(crate) fn new<R: Register, C: Clock>(shared: &Shared<R, C>, key: Key, head: &Parts) -> Self {
        let (at, wall) = (shared.now(), shared.wall());
        let anonymous = is_anonymous(&shared.config, head);
        let remembered = if anonymous { shared.remembered(&key, head, at, wall) } else { None };
        Self { key, anonymous, at, wall, remembered }
    }

    /// What is certain without waiting for anything: the 304, or that what is remembered is of the current version. None:
    /// nothing is.
    pub(crate) fn answer_at_once<T: Body, R: Register, C: Clock>(
        &self,
        shared: &Shared<R, C>,
    ) -> Option<Result<Response<ResponseBody<T>>, Looked>> {
        let remembered = self.remembered.as_ref()?;
        let is_fresh = || remembered.known.confirmed().saturating_add(shared.config.staleness) > self.at;
        if remembered.suffices && is_fresh() {
            return Some(Ok(shared.not_modified(remembered, self.at)));
        }
        self.answer_if_current(shared, remembered)
    }

    /// The same, if the register says at once that what is remembered is of the current version.
    fn answer_if_current<T: Body, R: Register, C: Clock>(
        &self,
        shared: &Shared<R, C>,
        remembered: &Remembered,
    ) -> Option<Result<Response<ResponseBody<T>>, Looked>> {
        let known = &remembered.known;
        let revision = shared.driver.revision_at_once(&self.key).filter(|revision| known.is_settled_at(*revision))?;
        known.confirm(self.at, revision);
        if remembered.suffices {
            return Some(Ok(shared.not_modified(remembered, self.at)));
        }
        let confirmed = Confirmed { known: Arc::clone(known), revision };
        Some(Err(Looked { at: self.at, wall: self.wall, found: Found::Confirmed(confirmed) }))
    }

    /// The 304, where the register makes it certain.
    ///
    /// # Errors
    /// The inner service must run; this is what was found in the register.
    pub(crate) async fn answer<T: Body, R: Register, C: Clock>(
        &self,
        shared: &Shared<R, C>,
    ) -> Result<Response<ResponseBody<T>>, Looked> {
        let at_once = self.remembered.as_ref().and_then(|remembered| self.answer_if_current(shared, remembered));
        if let Some(answer) = at_once {
            return answer;
        }
        let record = Box::pin(shared.answer(shared.driver.load(&self.key))).await;
        let settled =
            record.as_ref().and_then(|record| Some((record.settled(self.at)?.generation(), record.revision())));
        match (&self.remembered, settled) {
            (Some(remembered), Some((generation, revision)))
                if remembered.suffices && generation == remembered.known.generation =>
            {
                remembered.known.confirm(self.at, revision);
                Ok(shared.not_modified(remembered, self.at))
            }
            _ => Err(Looked {
                at: self.at,
                wall: self.wall,
                found: record.map_or(Found::Nothing, |record| Found::Record(Box::new(record))),
            }),
        }
    }
}

impl<R: Register, C: Clock> Shared<R, C> {
    fn remembered(&self, key: &Key, head: &Parts, at: Timestamp, wall: Timestamp) -> Option<Remembered> {
        let known = self.memory.get(key)?.find(head.uri.query(), &head.headers).cloned()?;
        let usable = self.is_authoritative() || (at < known.fresh_until && !wants_origin(&head.headers));
        let shown = self.config.behind_compression.then(|| compressed_tag::shown(&known.tag, &head.headers));
        let validators = Validators {
            tags: slice::from_ref(shown.as_ref().unwrap_or(&known.tag)),
            last_modified: Some(known.last_modified).filter(|date| date.has_come(wall)),
        };
        let verdict = precondition::evaluate(&head.headers, &Method::GET, Some(&validators));
        let suffices = usable && verdict == Verdict::NotModified;
        Some(Remembered { known, shown, suffices })
    }

    fn not_modified<T: Body>(&self, remembered: &Remembered, at: Timestamp) -> Response<ResponseBody<T>> {
        let Remembered { known, shown, .. } = remembered;
        let mut headers = known.headers.clone();
        if let Some(shown) = shown {
            headers.insert(ETAG, shown.to_header());
        }
        if !self.is_authoritative() {
            // Nobody but the response's own freshness vouches for it: it is as old as it is.
            headers.insert(AGE, known.born.until(at).as_secs().into());
        }
        responses::bare(headers)
    }
}
