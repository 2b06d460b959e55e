//! One request to the origin, and what its response means for what is stored.

use std::sync::Arc;
use std::time::Duration;

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use ifmatch_core::date::Timestamp;
use ifmatch_core::range::ByteRange;
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use crate::asked::Asked;
use crate::body::BodyError;
use crate::broadcast::{Broadcast, Reader};
use crate::content::Part;
use crate::fill::{Fill, collect};
use crate::flight::{Outcome, Pilot};
use crate::key::Key;
use crate::length::{Length, declared};
use crate::memory::Failing;
use crate::policy::cdn_cache_control::Governing;
use crate::policy::content_range::ContentRange;
use crate::policy::reuse::is_failure;
use crate::policy::storable::{Exchange, Refusal};
use crate::policy::update::is_about;
use crate::question::Question;
use crate::read::Plan;
use crate::shared::{Inner, Shared};
use crate::stored::{Body, Came, Meta, Stored};
use crate::table::Course;

/// How long nobody waits for another's response after one that could not be stored.
const UNSHARED: Duration = Duration::from_secs(30);

/// Time for which a failed origin is not asked again while a stale response can be used.
const PAUSE: Duration = Duration::from_secs(5);

/// A response with more header fields is not stored.
const MAX_FIELDS: usize = 1_000;

/// A request to the origin. It never has a body.
pub(crate) struct Fetch<C> {
    shared: Arc<Shared<C>>,
    key: Key,
    client: Parts,
    implicit: Box<str>,
    /// The stored response that the client's request selects.
    stored: Option<Stored>,
    question: Question,
    course: Course,
    /// The origin has failed for this URI before.
    failing: bool,
    pilot: Option<Pilot>,
}

/// What came.
pub(crate) enum Fetched<T> {
    /// What is stored is current, as this status of the origin says.
    Stored(Stored, StatusCode),
    /// A response in its own right.
    Kept(Kept<T>),
    /// The origin answers 304, and nobody has asked for that.
    Unusable,
}

/// What became of a response.
pub(crate) enum Kept<T> {
    /// It is being stored; a reader of its body.
    Fresh(response::Parts, Stored, Reader),
    /// It is not stored.
    Passed(Response<T>),
}

impl<C: Clock> Fetch<C> {
    /// Asks on behalf of a client. What is stored is validated, or completed, where that is possible.
    pub(crate) fn new(shared: &Arc<Shared<C>>, asked: &Asked, plan: Plan, pilot: Option<Pilot>) -> Self {
        let Plan { stored, course, failing, .. } = plan;
        let question = match &stored {
            Some(stored) => Question::about(stored, asked),
            None => Question::Client,
        };
        Self {
            shared: Arc::clone(shared),
            key: asked.key.clone(),
            client: asked.head.clone(),
            implicit: asked.implicit.clone(),
            stored,
            question,
            course,
            failing,
            pilot,
        }
    }

    /// Asks on behalf of nobody, for the whole: the client's own conditions do not count, nor that it sent HEAD.
    pub(crate) fn unconditional(mut self) -> Self {
        self.client.method = Method::GET;
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_RANGE] {
            self.client.headers.remove(name);
        }
        self
    }

    /// Asks.
    pub(crate) async fn run<B, S>(mut self, mut inner: S) -> Result<Fetched<S::Body>, S::Error>
    where
        S: Inner<B>,
        B: Default,
    {
        for _ in 0..2 {
            let (began, requested) = (self.shared.table.begin(), self.shared.now());
            let response = match inner.run(self.request()).await {
                Ok(response) => response,
                Err(error) => {
                    self.note_failure(Some(true));
                    self.tell(Outcome::Failed(None));
                    return Err(error);
                }
            };
            self.note_failure(is_failure(response.status()).then_some(false));
            let moment = Moment { asked: began, began, requested, received: self.shared.now() };
            match &self.question {
                Question::Changed(stored) if response.status() == StatusCode::NOT_MODIFIED => {
                    let stored = stored.clone();
                    if stored.exists() && is_about(response.headers(), &stored.meta.headers) {
                        return Ok(self.confirmed(&stored, response.headers(), moment));
                    }
                    self.shared.table.discard(&self.key, &stored);
                }
                Question::Missing(stored, range) if response.status() == StatusCode::PARTIAL_CONTENT => {
                    let (stored, range) = (stored.clone(), *range);
                    if let Some(whole) = self.completed(&stored, range, response, moment).await {
                        return Ok(whole);
                    }
                }
                Question::Missing(..) if !response.status().is_success() && !is_failure(response.status()) => {}
                Question::Client if response.status() == StatusCode::NOT_MODIFIED && !self.client_asked() => {
                    return Ok(Fetched::Unusable);
                }
                _ => return Ok(Fetched::Kept(self.response(response, moment))),
            }
            self.question = Question::Client;
        }
        Ok(Fetched::Unusable)
    }

    fn request<B: Default>(&self) -> Request<B> {
        let mut head = self.client.clone();
        self.question.put(&mut head.headers);
        Request::from_parts(head, B::default())
    }

    /// Whether the client's own request may be answered by 304.
    fn client_asked(&self) -> bool {
        self.client.headers.contains_key(IF_NONE_MATCH) || self.client.headers.contains_key(IF_MODIFIED_SINCE)
    }

    /// Records if the origin fails for a stored response: until it answers again, a usable stale response is served
    /// immediately.
    fn note_failure(&self, unreachable: Option<bool>) {
        if self.stored.is_some() && (self.failing || unreachable.is_some()) {
            let until = self.shared.moment().saturating_add(PAUSE);
            let failing = unreachable.map(|unreachable| Failing { until, unreachable });
            self.shared.table.note_failure(&self.key, failing);
        }
    }

    /// Shares a 304 with requests that wait with the same condition, if the confirmed response is shareable.
    fn share_unmodified(&self, head: &response::Parts, moment: Moment) {
        let refusal = self.refusal(StatusCode::OK, &head.headers, &Governing::of(&head.headers));
        let meta = Meta::new(StatusCode::OK, &head.headers, &self.came(moment));
        if refusal.is_none() && meta.terms.is_for_others() {
            self.tell(Outcome::Unmodified(Stored { meta: Arc::new(meta), body: Body::Whole(Arc::default()) }));
        }
    }

    /// The origin has said that the stored response is the current one.
    fn confirmed<T>(&self, stored: &Stored, newer: &HeaderMap, moment: Moment) -> Fetched<T> {
        self.shared.counters.revalidated.add(1);
        let meta = stored.meta.freshened(newer, &self.came(moment));
        let stored = Stored { meta: Arc::new(meta), body: stored.body.clone() };
        self.update(&stored);
        Fetched::Stored(stored, StatusCode::NOT_MODIFIED)
    }

    /// Stores what was updated, if it still may be stored, and tells the others.
    fn update(&self, stored: &Stored) {
        let governing = Governing::of(&stored.meta.headers);
        match self.refusal(stored.meta.status, &stored.meta.headers, &governing) {
            None if stored.meta.headers.len() <= MAX_FIELDS => {
                self.shared.table.store(&self.key, stored.clone(), |_, new| new);
                self.tell(Outcome::Ready(stored.clone()));
            }
            Some(refusal) if refusal.is_personal(&self.client.headers) => {}
            None | Some(_) => self.supersede(),
        }
    }

    /// The missing range has come. None: it is not what was asked for.
    async fn completed<T>(
        &self,
        stored: &Stored,
        range: ByteRange,
        response: Response<T>,
        moment: Moment,
    ) -> Option<Fetched<T>>
    where
        T: http_body::Body<Error: Into<BodyError>>,
    {
        let (head, body) = response.into_parts();
        let (Body::Part(part), Some(came)) = (&stored.body, ContentRange::of(&head.headers)) else { return None };
        let meta = stored.meta.freshened(&head.headers, &self.came(moment));
        let same = meta.strong_tag().is_some() && meta.tag == stored.meta.tag && came.bytes == range;
        if !same || came.total != part.total {
            return None;
        }
        let limit = self.shared.config.entry_limit;
        let content = collect(body, self.shared.budget.reserve(limit), range.len()).await?;
        let whole = part.join(&Part::new(came, content, limit))?.whole()?;
        let stored = Stored { meta: Arc::new(meta), body: Body::Whole(whole) };
        self.update(&stored);
        Some(Fetched::Stored(stored, StatusCode::PARTIAL_CONTENT))
    }

    /// Stores a response that has come already, if it may be, as one that was asked for with the ordinal `began`: what
    /// invalidated its URI between the two was its own request.
    pub(crate) fn keep<T>(self, response: Response<T>, asked: u64, began: u64, requested: Timestamp) -> Kept<T>
    where
        T: http_body::Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let received = self.shared.now();
        self.response(response, Moment { asked, began, requested, received })
    }

    /// A response in its own right: it is stored on its way, if it may be.
    fn response<T>(mut self, response: Response<T>, moment: Moment) -> Kept<T>
    where
        T: http_body::Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let (head, body) = response.into_parts();
        if head.status == StatusCode::NOT_MODIFIED && self.pilot.is_some() {
            self.share_unmodified(&head, moment);
        }
        let length = declared(&head.headers, body.size_hint().exact());
        let valid = |meta: &Meta| self.shared.table.are_valid(&self.key, &meta.groups, moment.asked);
        let Some((meta, length)) = self.storable(&head, length, moment).filter(|(meta, _)| valid(meta)) else {
            return Kept::Passed(Response::from_parts(head, body));
        };
        let range = ContentRange::of(&head.headers).filter(|_| head.status == StatusCode::PARTIAL_CONTENT);
        let reserved = self.shared.budget.reserve(self.shared.config.entry_limit);
        let to_file = range.is_none() && self.shared.config.disk.is_some();
        let broadcast = Arc::new(Broadcast::new(length, reserved, to_file));
        let stored = Stored { meta: Arc::new(meta), body: Body::Broadcast(Arc::clone(&broadcast)) };
        let Some(reader) = broadcast.join() else { return Kept::Passed(Response::from_parts(head, body)) };
        if range.is_none() {
            self.share(&stored);
        }
        let fill = Fill {
            shared: Arc::clone(&self.shared),
            key: self.key.clone(),
            meta: Arc::clone(&stored.meta),
            broadcast,
            range,
            pilot: self.pilot.take(),
            spool: None,
        };
        drop(detach(fill.run(body)));
        Kept::Fresh(head, stored, reader)
    }

    /// The head of a response that can be stored, and the length of its body. None: it cannot be, and what follows from
    /// that for what is stored is done.
    fn storable(&self, head: &response::Parts, length: Length, moment: Moment) -> Option<(Meta, Option<u64>)> {
        let refusal = self.refusal(head.status, &head.headers, &Governing::of(&head.headers));
        let length = length.ok().filter(|_| refusal.is_none()).filter(|length| self.has_room(head, *length));
        let stored = length.map(|length| (Meta::new(head.status, &head.headers, &self.came(moment)), length));
        let stored = stored.filter(|(meta, _)| meta.is_useful());
        if stored.is_none() {
            if is_failure(head.status) {
                self.tell(Outcome::Failed(Some(head.status)));
            }
            self.not_stored(head.status, refusal);
        }
        stored
    }

    /// Whether head and body are not too long, and the body as long as the part that it is said to be.
    fn has_room(&self, head: &response::Parts, length: Option<u64>) -> bool {
        let short = head.headers.len() <= MAX_FIELDS;
        let fits = short && length.is_none_or(|length| length <= self.shared.config.longest());
        if head.status != StatusCode::PARTIAL_CONTENT {
            return fits;
        }
        let range = ContentRange::of(&head.headers).filter(|_| self.client.headers.contains_key(RANGE));
        fits && range.is_some_and(|range| length.is_none_or(|length| length == range.bytes.len()))
    }

    /// What was stored is replaced by a response that must not be.
    fn not_stored(&self, status: StatusCode, refusal: Option<Refusal>) {
        let until = self.shared.moment().saturating_add(UNSHARED);
        if refusal == Some(Refusal::Credential) && self.pilot.is_some() {
            self.shared.table.expect_personal(&self.key, until);
        }
        let personal = refusal.is_some_and(|refusal| refusal.is_personal(&self.client.headers));
        let says_nothing = personal || is_failure(status) || status == StatusCode::NOT_MODIFIED;
        if says_nothing || self.client.headers.contains_key(RANGE) {
            return;
        }
        self.supersede();
        if self.pilot.is_some() {
            self.shared.table.expect_unshared(&self.key, until);
        }
    }

    /// Removes what is stored for the client's request: a newer response must not be stored.
    fn supersede(&self) {
        if let Some(stored) = &self.stored {
            self.shared.table.discard(&self.key, stored);
        }
    }

    fn refusal(&self, status: StatusCode, response: &HeaderMap, governing: &Governing) -> Option<Refusal> {
        let (request, rules) = (&self.client.headers, self.shared.config.rules);
        Exchange { method: &Method::GET, request, status, response, governing, rules }.refusal()
    }

    /// Lets others have the response, also those who come while its body is still coming.
    fn share(&mut self, stored: &Stored) {
        if self.pilot.is_none() {
            self.pilot = self.shared.table.share(&self.key, &self.course, stored.meta.began);
        }
        self.tell(Outcome::Ready(stored.clone()));
    }

    fn tell(&self, outcome: Outcome) {
        if let Some(pilot) = &self.pilot {
            pilot.tell(outcome);
        }
    }

    fn came(&self, moment: Moment) -> Came<'_> {
        Came {
            request: &self.client.headers,
            implicit: &self.implicit,
            began: moment.began,
            requested: moment.requested,
            received: moment.received,
            heuristic: self.shared.config.heuristic,
            unstored: &self.shared.config.unstored,
            always_validate: self.shared.config.always_validate,
        }
    }
}

/// When the origin was asked, and when it answered.
#[derive(Clone, Copy)]
struct Moment {
    asked: u64,
    /// The ordinal that the response is stored with.
    began: u64,
    requested: Timestamp,
    received: Timestamp,
}
