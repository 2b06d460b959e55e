//! One request to the origin, and the effect of its response on the store.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use ifmatch_core::date::Timestamp;
use ifmatch_core::range::ByteRange;
use ifmatch_runtime::task::detach;

use crate::body::broadcast::{BodyBroadcast, BroadcastReader};
use crate::body::in_memory::PartialBody;
use crate::body::parts::BodyParts;
use crate::fetch::fill::{BodyFill, collect};
use crate::fetch::revalidation::Revalidation;
use crate::fetch::single_flight::{FlightFailure, FlightKey, FlightLeader, FlightOutcome};
use crate::inner_service::InnerService;
use crate::lookup::ForwardPlan;
use crate::metrics::{NotStored, Outcome as RequestOutcome};
use crate::policy::cache_control::RequestDirectives;
use crate::policy::cdn_cache_control::Governing;
use crate::policy::content_range::ContentRange;
use crate::policy::resource_rules::ResourceRules;
use crate::policy::reuse::is_failure;
use crate::policy::storable::{Exchange, Refusal};
use crate::policy::update::is_about;
use crate::request::CacheRequest;
use crate::request::key::CacheKey;
use crate::respond::response_body::BodyError;
use crate::state::CacheState;
use crate::store::entry::OriginFailure;
use crate::store::stored_response::{
    ArrivalContext, OpenBody, StoredBody, StoredHead, StoredResponse,
};

/// Time for which requests don't wait for each other after a response that couldn't be stored.
const UNSHARED: Duration = Duration::from_secs(30);

/// Time for which a failed origin isn't asked again while a stale response can be used.
const PAUSE: Duration = Duration::from_secs(5);

/// Maximum number of header fields in a stored response.
const MAX_FIELDS: usize = 1_000;

/// A request to the origin. It has no body.
pub(crate) struct OriginRequest {
    state: Arc<CacheState>,
    key: CacheKey,
    /// The head of the client's request.
    client: Parts,
    implicit_key: Box<str>,
    /// The stored response that the client's request selects.
    stored: Option<StoredResponse>,
    revalidation: Revalidation,
    flight_key: FlightKey,
    /// `true` if the last request for this URI failed.
    failing: bool,
    /// `true` if a failure of this request is one of the origin for others: it asks as they do.
    is_sharable: bool,
    /// Address of the client, if known.
    address: Option<IpAddr>,
    leader: Option<FlightLeader>,
}

/// The result of a request to the origin.
pub(crate) enum OriginResult<T> {
    /// The stored response, updated by a response with this status. Its body can be read, even if the response is removed
    /// meanwhile.
    Updated(StoredResponse, StatusCode, OpenBody),
    /// A new response.
    New(NewResponse<T>),
    /// A 304 to a request without conditions.
    Unusable,
}

/// A new response from the origin.
pub(crate) enum NewResponse<T> {
    /// It is being stored. The reader returns its body.
    Storing(response::Parts, StoredResponse, BroadcastReader),
    /// It isn't stored, which is the outcome of the request.
    NotStored(Response<T>, RequestOutcome),
}

impl OriginRequest {
    /// Creates a client's request. The stored response is revalidated or completed where possible.
    pub(crate) fn new(
        state: &Arc<CacheState>,
        request: &CacheRequest,
        plan: ForwardPlan,
        leader: Option<FlightLeader>,
    ) -> Self {
        let ForwardPlan {
            stored,
            flight_key,
            failing,
            ..
        } = plan;
        let revalidation = stored.as_ref().map_or(Revalidation::None, |stored| {
            Revalidation::of(stored, request)
        });
        Self {
            state: Arc::clone(state),
            key: request.key.clone(),
            client: request.head.clone(),
            implicit_key: request.implicit_key.clone(),
            stored,
            revalidation,
            flight_key,
            failing,
            is_sharable: request.is_sharable(),
            address: request.client,
            leader,
        }
    }

    /// Turns the request into a background GET of the whole: the client's own conditions, ranges and method don't
    /// apply.
    pub(crate) fn unconditional(mut self) -> Self {
        self.client.method = Method::GET;
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_RANGE] {
            self.client.headers.remove(name);
        }
        self
    }

    /// Sends the request, and a second one without the cache's own condition if the first response is of no use.
    pub(crate) async fn run<B, S>(mut self, mut inner: S) -> Result<OriginResult<S::Body>, S::Error>
    where
        S: InnerService<B>,
        B: Default,
    {
        for _ in 0..2 {
            let (began, requested) = (self.state.table.next_ordinal(), self.state.wall());
            let response = match inner.run(self.request()).await {
                Ok(response) => response,
                Err(error) => {
                    let is_of_origin = !(self.state.config.unasked)(&error);
                    if is_of_origin {
                        self.note_failure(Some(true));
                    }
                    self.tell(self.failure(is_of_origin, None));
                    return Err(error);
                }
            };
            self.note_failure(is_failure(response.status()).then_some(false));
            let times = ExchangeTimes {
                asked: began,
                began,
                requested,
                received: self.state.wall(),
            };
            match &self.revalidation {
                Revalidation::Validate(stored) if response.status() == StatusCode::NOT_MODIFIED => {
                    let stored = stored.clone();
                    // A purge or an eviction may delete the file at any time, also between here and the client's response. A
                    // file that is gone already is requested again; one that is open stays readable.
                    let open = stored
                        .open()
                        .filter(|_| is_about(response.headers(), &stored.meta.headers));
                    if let Some(open) = open {
                        let stored = self.confirmed(&stored, response.headers(), times);
                        return Ok(OriginResult::Updated(
                            stored,
                            StatusCode::NOT_MODIFIED,
                            open,
                        ));
                    }
                    self.state.table.discard(&self.key, &stored);
                }
                Revalidation::Complete(stored, range)
                    if response.status() == StatusCode::PARTIAL_CONTENT =>
                {
                    let (stored, range) = (stored.clone(), *range);
                    if let Some(whole) = self.completed(&stored, range, response, times).await {
                        return Ok(whole);
                    }
                }
                Revalidation::Complete(..)
                    if !response.status().is_success() && !is_failure(response.status()) => {}
                Revalidation::None
                    if response.status() == StatusCode::NOT_MODIFIED
                        && !self.client_is_conditional() =>
                {
                    return Ok(OriginResult::Unusable);
                }
                _ => return Ok(OriginResult::New(self.new_response(response, times))),
            }
            self.revalidation = Revalidation::None;
        }
        Ok(OriginResult::Unusable)
    }

    fn request<B: Default>(&self) -> Request<B> {
        let mut head = self.client.clone();
        self.revalidation.apply_to(&mut head.headers);
        Request::from_parts(head, B::default())
    }

    fn client_is_conditional(&self) -> bool {
        self.client.headers.contains_key(IF_NONE_MATCH)
            || self.client.headers.contains_key(IF_MODIFIED_SINCE)
    }

    fn failure(&self, is_of_origin: bool, status: Option<StatusCode>) -> FlightOutcome {
        FlightOutcome::Failed(FlightFailure {
            is_of_origin,
            status,
            client: self.address,
        })
    }

    /// Records if the origin fails for a stored response: until it answers again, a usable stale response is served
    /// immediately. A client that forces its requests can't prolong this.
    fn note_failure(&self, unreachable: Option<bool>) {
        let is_news = if unreachable.is_some() {
            self.is_sharable
        } else {
            self.failing
        };
        if self.stored.is_some() && is_news {
            let until = self.state.now().saturating_add(PAUSE);
            let failing = unreachable.map(|unreachable| OriginFailure { until, unreachable });
            self.state.table.note_failure(&self.key, failing);
        }
    }

    /// Shares a 304 with requests that wait with the same condition, if the confirmed response is shareable.
    fn share_unmodified(&self, head: &response::Parts, times: ExchangeTimes) {
        let refusal = self.refusal(
            StatusCode::OK,
            &head.headers,
            &self.state.config.governing(&head.headers),
        );
        let meta = StoredHead::new(StatusCode::OK, &head.headers, &self.arrival(times));
        if refusal.is_none() && meta.terms.is_for_others() {
            self.tell(FlightOutcome::Unmodified(StoredResponse {
                meta: Arc::new(meta),
                body: StoredBody::Whole(Arc::default()),
            }));
        }
    }

    /// Freshens the stored response after a 304.
    fn confirmed(
        &self,
        stored: &StoredResponse,
        newer: &HeaderMap,
        times: ExchangeTimes,
    ) -> StoredResponse {
        self.state.counters.confirmed.add(1);
        let meta = stored.meta.freshened(newer, &self.arrival(times));
        let stored = StoredResponse {
            meta: Arc::new(meta),
            body: stored.body.clone(),
        };
        self.update(&stored);
        stored
    }

    /// Stores an updated response if it may still be stored, and shares it.
    fn update(&self, stored: &StoredResponse) {
        let governing = self.state.config.governing(&stored.meta.headers);
        match self.refusal(stored.meta.status, &stored.meta.headers, &governing) {
            None if stored.meta.headers.len() <= MAX_FIELDS => {
                self.state
                    .table
                    .store(&self.key, stored.clone(), |_, new| new);
                self.tell(FlightOutcome::Ready(stored.clone()));
            }
            Some(refusal) if refusal.is_personal(&self.client.headers) => {}
            refusal => self.supersede(stored.meta.status, refusal),
        }
    }

    /// Completes the stored part with the missing range. Returns `None` if the response is another range or version.
    async fn completed<T>(
        &self,
        stored: &StoredResponse,
        range: ByteRange,
        response: Response<T>,
        times: ExchangeTimes,
    ) -> Option<OriginResult<T>>
    where
        T: http_body::Body<Error: Into<BodyError>>,
    {
        let (head, body) = response.into_parts();
        let (StoredBody::Parts(parts), Some(received)) =
            (&stored.body, ContentRange::of(&head.headers))
        else {
            return None;
        };
        let meta = stored.meta.freshened(&head.headers, &self.arrival(times));
        // Without a tag of its own, the part may be of another version: its origin doesn't know `If-Range`.
        let is_tagged = head.headers.contains_key(ETAG);
        let same = is_tagged
            && meta.strong_tag().is_some()
            && meta.tag == stored.meta.tag
            && received.bytes == range;
        if !same || received.total != parts.total {
            return None;
        }
        let limit = self.state.config.entry_limit;
        let content = collect(body, self.state.budget.reserve(limit), range.len())
            .await?
            .held_within(&self.state.held);
        let whole = parts
            .join(&BodyParts::in_memory(PartialBody::new(
                received, content, limit,
            )))?
            .whole()?;
        let stored = StoredResponse {
            meta: Arc::new(meta),
            body: StoredBody::Whole(whole),
        };
        self.update(&stored);
        Some(OriginResult::Updated(
            stored,
            StatusCode::PARTIAL_CONTENT,
            OpenBody::default(),
        ))
    }

    /// Stores the response to a POST, if possible. It is stored with the ordinal of the invalidation that it caused
    /// itself, `began`; `asked` is the ordinal of its request.
    pub(crate) fn store_post<T>(
        self,
        response: Response<T>,
        asked: u64,
        began: u64,
        requested: Timestamp,
    ) -> NewResponse<T>
    where
        T: http_body::Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let received = self.state.wall();
        self.new_response(
            response,
            ExchangeTimes {
                asked,
                began,
                requested,
                received,
            },
        )
    }

    /// Handles a new response. If it may be stored, its body is stored while it is passed on.
    fn new_response<T>(mut self, response: Response<T>, times: ExchangeTimes) -> NewResponse<T>
    where
        T: http_body::Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    {
        let (head, body) = response.into_parts();
        if head.status == StatusCode::NOT_MODIFIED
            && self.leader.is_some()
            && self.flight_key.has_condition()
        {
            self.share_unmodified(&head, times);
        }
        let length = declared_length(&head.headers, body.size_hint().exact());
        let (meta, length) = match self.storable(&head, length, times) {
            Ok(storable) => storable,
            Err(outcome) => {
                return NewResponse::NotStored(Response::from_parts(head, body), outcome);
            }
        };
        let range =
            ContentRange::of(&head.headers).filter(|_| head.status == StatusCode::PARTIAL_CONTENT);
        let mut reservation = self.state.budget.reserve(self.state.config.entry_limit);
        let in_memory = length.is_some_and(|length| reservation.cover(length));
        let disk = self.state.config.disk.as_ref();
        let space = disk
            .filter(|_| !in_memory)
            .and_then(|disk| disk.reserve(length?));
        let broadcast = BodyBroadcast::new(
            length,
            reservation,
            in_memory || space.is_some(),
            disk.is_some(),
        );
        let broadcast = Arc::new(broadcast);
        let stored = StoredResponse {
            meta: Arc::new(meta),
            body: StoredBody::Broadcast(Arc::clone(&broadcast)),
        };
        let Some(reader) = broadcast.join() else {
            let response = Response::from_parts(head, body);
            return NewResponse::NotStored(response, RequestOutcome::ErrorUnusable);
        };
        if range.is_none() {
            self.share(&stored);
        }
        let fill = BodyFill {
            state: Arc::clone(&self.state),
            key: self.key.clone(),
            meta: Arc::clone(&stored.meta),
            broadcast,
            range,
            leader: self.leader.take(),
            disk_writer: None,
            space,
            lost: Some(NotStored::Broken),
        };
        drop(detach(fill.run(body)));
        NewResponse::Storing(head, stored, reader)
    }

    /// Returns the head of a storable response, and the length of its body. If the response isn't storable, updates
    /// the store accordingly and returns the outcome of the request.
    fn storable(
        &self,
        head: &response::Parts,
        length: DeclaredLength,
        times: ExchangeTimes,
    ) -> Result<(StoredHead, Option<u64>), RequestOutcome> {
        let governing = self.state.config.governing(&head.headers);
        let refusal = self.refusal(head.status, &head.headers, &governing);
        let useful = match refusal {
            _ if self.is_covered(head.status) => Err(RequestOutcome::ErrorStatus),
            Some(refusal) => Err(refusal.into()),
            None => self.useful(head, length, times),
        };
        let (meta, length) = useful.map_err(|why| self.decline(head.status, refusal, why))?;
        let table = &self.state.table;
        if table.are_valid(&self.key, &meta.groups, times.asked) {
            Ok((meta, length))
        } else {
            Err(RequestOutcome::PassInvalidated)
        }
    }

    /// Returns `true` for an error that the stored response may be used in place of (RFC 5861 §4). Such an error doesn't replace it,
    /// even if it states a lifetime, unless the operator has given its status one.
    fn is_covered(&self, status: StatusCode) -> bool {
        let rules = ResourceRules::of(&self.client.extensions);
        let is_named =
            || rules.ttl.get(status).is_some() || rules.override_ttl.get(status).is_some();
        let covers = |stored: &StoredResponse| {
            let age = stored.meta.age(self.state.wall());
            stored
                .meta
                .terms
                .serves_error(&RequestDirectives::default(), age, None)
        };
        is_failure(status) && !is_named() && self.stored.as_ref().is_some_and(covers)
    }

    /// Returns the head of a response that may be stored, and its length, if it is within the limits and can ever be used.
    fn useful(
        &self,
        head: &response::Parts,
        length: DeclaredLength,
        times: ExchangeTimes,
    ) -> Result<(StoredHead, Option<u64>), RequestOutcome> {
        let length = length.map_err(|InvalidLength| RequestOutcome::PassMalformed)?;
        let longest = self.state.config.longest();
        if head.headers.len() > MAX_FIELDS || length.is_some_and(|length| length > longest) {
            return Err(RequestOutcome::PassTooLarge);
        }
        if head.status == StatusCode::PARTIAL_CONTENT && !self.is_part(head, length) {
            return Err(RequestOutcome::PassMalformed);
        }
        let meta = StoredHead::new(head.status, &head.headers, &self.arrival(times));
        if meta.is_useful() {
            Ok((meta, length))
        } else {
            Err(RequestOutcome::PassLifetime)
        }
    }

    /// Returns `true` if the client asked for a part, and the part is as long as its `Content-Range` says.
    fn is_part(&self, head: &response::Parts, length: Option<u64>) -> bool {
        let range =
            ContentRange::of(&head.headers).filter(|_| self.client.headers.contains_key(RANGE));
        range.is_some_and(|range| length.is_none_or(|length| length == range.bytes.len()))
    }

    /// Handles a response that isn't stored: shares a failure, and discards the stored response if the new one supersedes
    /// it. Returns the outcome of the request.
    fn decline(
        &self,
        status: StatusCode,
        refusal: Option<Refusal>,
        why: RequestOutcome,
    ) -> RequestOutcome {
        if is_failure(status) {
            self.tell(self.failure(true, Some(status)));
        }
        self.note_unstored(status, refusal, why);
        if is_failure(status) {
            RequestOutcome::ErrorStatus
        } else {
            why
        }
    }

    /// Discards the stored response if the new one supersedes it but must not be stored.
    fn note_unstored(&self, status: StatusCode, refusal: Option<Refusal>, why: RequestOutcome) {
        let until = self.state.now().saturating_add(UNSHARED);
        if refusal == Some(Refusal::Credential) && self.leader.is_some() {
            self.state.table.expect_personal(&self.key, until, why);
        }
        let personal = refusal.is_some_and(|refusal| refusal.is_personal(&self.client.headers));
        let supersedes = !personal && !is_failure(status) && status != StatusCode::NOT_MODIFIED;
        if !supersedes || self.client.headers.contains_key(RANGE) {
            return;
        }
        self.supersede(status, refusal);
        if self.leader.is_some() {
            self.state.table.expect_unshared(&self.key, until, why);
        }
    }

    /// Discards the stored response that the client's request selects, unless it is fresh, and the new one is about this client
    /// only.
    fn supersede(&self, status: StatusCode, refusal: Option<Refusal>) {
        if let Some(stored) = &self.stored
            && !stored.meta.withstands(status, refusal, self.state.wall())
        {
            self.state.table.discard(&self.key, stored);
        }
    }

    fn refusal(
        &self,
        status: StatusCode,
        response: &HeaderMap,
        governing: &Governing,
    ) -> Option<Refusal> {
        let (request, rules) = (&self.client.headers, self.state.config.rules);
        let resource = ResourceRules::of(&self.client.extensions);
        Exchange {
            method: &Method::GET,
            request,
            status,
            response,
            governing,
            rules,
            resource,
        }
        .refusal()
    }

    /// Shares the response with other requests, including those that arrive before its body has.
    fn share(&mut self, stored: &StoredResponse) {
        if self.leader.is_none() {
            let CacheState { flights, table, .. } = &*self.state;
            self.leader = flights.share(table, &self.key, &self.flight_key, stored.meta.began);
        }
        self.tell(FlightOutcome::Ready(stored.clone()));
    }

    fn tell(&self, outcome: FlightOutcome) {
        if let Some(leader) = &self.leader {
            leader.tell(outcome);
        }
    }

    fn arrival(&self, times: ExchangeTimes) -> ArrivalContext<'_> {
        ArrivalContext::new(
            &self.state.config,
            &self.client,
            &self.implicit_key,
            times.began,
            times.requested,
            times.received,
        )
    }
}

/// Times of a request and its response.
#[derive(Clone, Copy)]
struct ExchangeTimes {
    /// Ordinal of the request.
    asked: u64,
    /// Ordinal that the response is stored with.
    began: u64,
    requested: Timestamp,
    received: Timestamp,
}

/// The declared length of a body, if any.
type DeclaredLength = Result<Option<u64>, InvalidLength>;

/// `Content-Length` is malformed, repeated, or contradicts the body.
#[derive(Clone, Copy, Debug)]
struct InvalidLength;

fn declared_length(headers: &HeaderMap, exact: Option<u64>) -> DeclaredLength {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Ok(exact),
        (Some(line), None) => line
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())),
        (Some(_), Some(_)) => None,
    };
    let length = line
        .and_then(|digits| digits.parse().ok())
        .ok_or(InvalidLength)?;
    if exact.is_some_and(|exact| exact != length) {
        Err(InvalidLength)
    } else {
        Ok(Some(length))
    }
}
