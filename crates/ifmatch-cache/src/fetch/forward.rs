//! GET and HEAD requests that the store can't answer: they wait for another request's response, or ask the origin.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use ifmatch_core::problem::Problem;
use ifmatch_runtime::task::{detach, timeout};

use crate::fetch::head;
use crate::fetch::origin::{NewResponse, OriginRequest, OriginResult};
use crate::fetch::resume::resumable;
use crate::fetch::single_flight::{Flight, FlightKey, FlightLeader, FlightOutcome, FlightRole};
use crate::inner_service::InnerService;
use crate::lookup::{ForwardPlan, LookupResult, decide, lookup};
use crate::metrics::{Outcome as RequestOutcome, RequestTally};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::reuse::{Reuse, is_failure};
use crate::request::CacheRequest;
use crate::respond::response_body::ResponseBody;
use crate::respond::{self, CachedResponse, respond};
use crate::state::CacheState;
use crate::store::stored_response::StoredResponse;
use crate::store::table::FoundEntry;

/// Number of flights that a request joins before it asks for itself.
const MAX_JOINS: usize = 3;

/// Revalidates a stored response in the background, unless another request already does.
pub(crate) fn revalidate<S, B>(
    state: &Arc<CacheState>,
    request: &CacheRequest,
    plan: ForwardPlan,
    inner: S,
) where
    S: InnerService<B>,
    B: Default + Send + 'static,
{
    if let FlightRole::Leader(leader) =
        state
            .flights
            .join_or_lead(&state.table, &request.key, &plan.flight_key)
    {
        let fetch = OriginRequest::new(state, request, plan, Some(leader)).unconditional();
        drop(detach(fetch.run::<B, S>(inner)));
    }
}

/// A request that needs the origin.
pub(crate) struct ForwardedRequest {
    state: Arc<CacheState>,
    request: CacheRequest,
    plan: ForwardPlan,
    tally: RequestTally,
}

/// The end of a request's wait for others.
enum WaitEnd<T> {
    /// Another request's response answers it.
    Respond(Response<ResponseBody<T>>),
    /// It must ask the origin, perhaps on behalf of others.
    Ask(Option<FlightLeader>),
}

impl ForwardedRequest {
    pub(crate) fn new(state: &Arc<CacheState>, request: CacheRequest, plan: ForwardPlan) -> Self {
        Self {
            state: Arc::clone(state),
            request,
            plan,
            tally: RequestTally::new(state),
        }
    }

    /// Waits for another request's response, or asks the origin.
    pub(crate) async fn run<B, S>(
        mut self,
        inner: S,
    ) -> Result<Response<ResponseBody<S::Body>>, S::Error>
    where
        S: InnerService<B>,
        B: Default + Send + 'static,
    {
        if self.request.directives.only_if_cached {
            self.tally.set(RequestOutcome::OnlyIfCached);
            return Ok(respond::only_if_cached());
        }
        if self.request.is_head() {
            return self.head(inner).await;
        }
        let leader = match self.turn().await {
            WaitEnd::Respond(response) => return Ok(resumable(response, &self.request, inner)),
            WaitEnd::Ask(leader) => leader,
        };
        let (detached, for_resume) = (leader.is_some(), inner.clone());
        let fetch = OriginRequest::new(&self.state, &self.request, self.plan.clone(), leader);
        let fetched = if detached {
            match detach(fetch.run::<B, S>(inner)).result().await {
                Some(fetched) => fetched,
                None => return Ok(self.bad_gateway()),
            }
        } else {
            fetch.run::<B, S>(inner).await
        };
        self.conclude(fetched)
            .map(|response| resumable(response, &self.request, for_resume))
    }

    /// Waits while other requests ask for the same response.
    async fn turn<T>(&mut self) -> WaitEnd<T> {
        if !self.request.is_sharable() {
            return WaitEnd::Ask(None);
        }
        let mut failures = Vec::new();
        for _ in 0..MAX_JOINS {
            if self.plan.unshared {
                break;
            }
            if let Some(end) = self.join(&mut failures).await {
                return end;
            }
        }
        WaitEnd::Ask(None)
    }

    /// Joins the flight for the same response, or leads one. Returns `None` if its outcome is for other requests.
    async fn join<T>(&mut self, failures: &mut Vec<Option<IpAddr>>) -> Option<WaitEnd<T>> {
        let (flights, table) = (&self.state.flights, &self.state.table);
        let flight_key = self.plan.flight_key.clone();
        let flight = match flights.join_or_lead(table, &self.request.key, &flight_key) {
            FlightRole::Leader(leader) => return Some(self.lead(leader, flight_key)),
            FlightRole::Follower(flight) => flight,
        };
        let waited = flight.is_pending();
        let outcome = match self.wait(&flight).await {
            Ok(outcome) => outcome,
            Err(leader) => return Some(self.retry_or_ask(flight_key, Some(leader))),
        };
        let next_key = match outcome {
            FlightOutcome::Ready(stored) if self.selects(&stored) => {
                match self.collapsed(&stored, waited) {
                    Some(response) => return Some(WaitEnd::Respond(response)),
                    None if waited => return Some(WaitEnd::Ask(None)),
                    // It became stale while its body arrives: later requests share the next request to the origin.
                    None => {
                        self.state.flights.close(&self.request.key, &flight);
                        flight_key
                    }
                }
            }
            FlightOutcome::Unmodified(stored)
                if waited && self.selects(&stored) && self.is_valid(&stored) =>
            {
                return Some(WaitEnd::Respond(self.unmodified(&stored)));
            }
            // The response is for other requests, but shows what responses vary by.
            FlightOutcome::Ready(stored) | FlightOutcome::Unmodified(stored) => {
                let vary = stored.meta.secondary_key.vary.clone();
                flight_key.varying(vary, &self.request.head.headers)
            }
            FlightOutcome::Failed(failure) => {
                if failure.is_of_origin {
                    failures.push(failure.client);
                    if let Some(end) = self.failed(failure.status, failures) {
                        return Some(end);
                    }
                }
                if failure.client == self.request.client {
                    flight_key
                } else {
                    flight_key.apart_from(failure.client)
                }
            }
            // The leader may have found the response in the store.
            FlightOutcome::Alone | FlightOutcome::Pending => {
                return Some(self.retry_or_ask(flight_key, None));
            }
        };
        self.retry(next_key).map(WaitEnd::Respond)
    }

    /// Leads a flight, unless the response has been stored since the lookup, or is on disk only.
    fn lead<T>(&mut self, leader: FlightLeader, flight_key: FlightKey) -> WaitEnd<T> {
        let trusted = self.state.is_trusted();
        let Some(found) = self.load() else {
            return self.retry_or_ask(flight_key, Some(leader));
        };
        let found = decide(&self.state, &self.request, &found, trusted);
        let response = self.found(found, flight_key);
        response.map_or(WaitEnd::Ask(Some(leader)), WaitEnd::Respond)
    }

    /// Looks the response up again, and asks the origin if it still isn't there.
    fn retry_or_ask<T>(
        &mut self,
        flight_key: FlightKey,
        leader: Option<FlightLeader>,
    ) -> WaitEnd<T> {
        let response = self.retry(flight_key);
        response.map_or(WaitEnd::Ask(leader), WaitEnd::Respond)
    }

    /// Waits for the outcome of a flight. Returns a leader if this request is to ask the origin as well, for all that wait, because
    /// the others haven't been answered in time.
    async fn wait(&self, flight: &Arc<Flight>) -> Result<FlightOutcome, FlightLeader> {
        let mut round = 0;
        loop {
            if let Ok(outcome) = timeout(
                &*self.state.clock,
                self.state.config.patience,
                flight.outcome(),
            )
            .await
            {
                return Ok(outcome);
            }
            if let Some(leader) = self.state.flights.relieve(&self.request.key, flight, round) {
                return Err(leader);
            }
            round += 1;
        }
    }

    /// Returns `true` if a response to another request also answers this one.
    fn selects(&self, stored: &StoredResponse) -> bool {
        stored.is_selected(&self.request.head.headers, &self.request.implicit_key)
    }

    /// Returns `true` if no group of a response to another request was invalidated since that request.
    fn is_valid(&self, stored: &StoredResponse) -> bool {
        self.state.table.is_valid(&self.request.key, stored)
    }

    /// Handles a failure of the origin for a request of the last of these clients. Returns `None` if this request is to wait for
    /// another one, or to ask on behalf of the waiting ones.
    ///
    /// The first request may have caused a failure itself. A second failure, of another client or of this request's, is
    /// attributed to the origin, and all waiting requests get it without asking for themselves. Its content may be private, so
    /// it isn't shared.
    fn failed<T>(
        &mut self,
        status: Option<StatusCode>,
        clients: &[Option<IpAddr>],
    ) -> Option<WaitEnd<T>> {
        if let Some(response) = self.stale(status) {
            return Some(WaitEnd::Respond(response));
        }
        if status == Some(StatusCode::INTERNAL_SERVER_ERROR) {
            return Some(WaitEnd::Ask(None));
        }
        let own = self.request.client;
        let is_other = |client: &Option<IpAddr>| {
            *client == own || clients.first().is_some_and(|first| first != client)
        };
        (clients.len() > 1 && clients.iter().any(is_other)).then(|| {
            self.tally
                .set(status.map_or(RequestOutcome::ErrorUnreachable, |_| {
                    RequestOutcome::ErrorStatus
                }));
            let detail = "the origin fails: try again later";
            let problem = Problem::new(status.unwrap_or(StatusCode::BAD_GATEWAY), "origin-failed")
                .detail(detail);
            let mut response = respond::problem(&problem, self.collapsed_status());
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            WaitEnd::Respond(response)
        })
    }

    /// Responds with the origin's 304 to another request with the same conditions.
    fn unmodified<T>(&mut self, stored: &StoredResponse) -> Response<ResponseBody<T>> {
        self.tally.set(RequestOutcome::Collapsed);
        let status = self.collapsed_status();
        respond::unmodified(
            &self.state.recent_heads,
            &self.request,
            stored,
            self.state.wall(),
            status,
        )
    }

    /// Reads the response that the request selects from disk, if the memory has none.
    fn load(&self) -> Option<FoundEntry> {
        let CacheRequest {
            key,
            head,
            implicit_key,
            ..
        } = &self.request;
        let is_missing = self.plan.stored.is_none();
        is_missing
            .then(|| self.state.table.load(key, &head.headers, implicit_key))
            .flatten()
    }

    /// Repeats the lookup. Updates the plan if the origin is still needed.
    fn retry<T>(&mut self, flight_key: FlightKey) -> Option<Response<ResponseBody<T>>> {
        let found = lookup(&self.state, &self.request);
        self.found(found, flight_key)
    }

    /// Responds with what a lookup has found. Updates the plan if the origin is still needed.
    fn found<T>(
        &mut self,
        found: LookupResult<T>,
        flight_key: FlightKey,
    ) -> Option<Response<ResponseBody<T>>> {
        match found {
            LookupResult::Hit(response, outcome)
            | LookupResult::HitAndRevalidate(response, outcome, _) => {
                self.tally.set(outcome);
                Some(response)
            }
            LookupResult::Forward(plan) => {
                self.plan = ForwardPlan { flight_key, ..plan };
                None
            }
        }
    }

    /// Responds with another request's response, if it also answers this one. A request that has `waited` may use
    /// it even if it is stale by now, since the response to its own request would be, too.
    fn collapsed<T>(
        &mut self,
        stored: &StoredResponse,
        waited: bool,
    ) -> Option<Response<ResponseBody<T>>> {
        let now = self.state.wall();
        let terms = &stored.meta.terms;
        let reuse = terms.reuse(&self.request.directives, stored.meta.age(now));
        let fresh = matches!(reuse, Reuse::Fresh | Reuse::StaleWhileRevalidate);
        let usable = fresh || waited && reuse == Reuse::Validate && terms.is_for_others();
        if !usable || !self.is_valid(stored) {
            return None;
        }
        let status = self.collapsed_status();
        let CachedResponse { response, bytes } =
            respond(&self.state.recent_heads, &self.request, stored, now, status)?;
        self.tally.set(RequestOutcome::Collapsed);
        self.state.counters.bytes.add(bytes);
        Some(response)
    }

    /// Turns the result of this request's own fetch into a response.
    fn conclude<T, E>(
        &mut self,
        fetched: Result<OriginResult<T>, E>,
    ) -> Result<Response<ResponseBody<T>>, E> {
        let status = CacheStatus::forwarded(self.plan.why);
        let now = self.state.wall();
        match fetched {
            Err(error) => {
                self.tally.set(RequestOutcome::ErrorUnreachable);
                self.stale(None).ok_or(error)
            }
            // `_open` keeps the body readable until the response reads it.
            Ok(OriginResult::Updated(stored, origin, _open)) => {
                let confirmed = origin == StatusCode::NOT_MODIFIED;
                self.tally.set(if confirmed {
                    RequestOutcome::Revalidated
                } else {
                    RequestOutcome::MissPartial
                });
                let status = CacheStatus {
                    origin: Some(origin),
                    ..status
                };
                let cached = respond(
                    &self.state.recent_heads,
                    &self.request,
                    &stored,
                    now,
                    status,
                );
                let Some(CachedResponse { response, bytes }) = cached else {
                    return Ok(self.bad_gateway());
                };
                if confirmed {
                    self.state.counters.bytes.add(bytes);
                }
                Ok(response)
            }
            Ok(OriginResult::New(NewResponse::Storing(mut head, stored, reader))) => {
                self.tally.set(RequestOutcome::stored(self.plan.why));
                let status = CacheStatus {
                    stored: reader.is_reserved(),
                    ..status
                }
                .with_ttl(stored.meta.terms.end(), stored.meta.age(now));
                status.append_to(&mut head.headers);
                if self.plan.stored.is_some() && respond::is_unmodified(&self.request, &stored.meta)
                {
                    return Ok(respond::not_modified(head.headers));
                }
                Ok(Response::from_parts(head, ResponseBody::broadcast(reader)))
            }
            Ok(OriginResult::New(NewResponse::NotStored(response, outcome))) => {
                self.tally.set(outcome);
                if is_failure(response.status())
                    && let Some(stale) = self.stale(Some(response.status()))
                {
                    return Ok(stale);
                }
                let (mut head, body) = response.into_parts();
                status.append_to(&mut head.headers);
                Ok(Response::from_parts(head, ResponseBody::inner(body)))
            }
            Ok(OriginResult::Unusable) => Ok(self.bad_gateway()),
        }
    }

    /// Returns the status of a response to another request.
    fn collapsed_status(&self) -> CacheStatus {
        CacheStatus {
            collapsed: true,
            ..CacheStatus::forwarded(self.plan.why)
        }
    }

    fn bad_gateway<T>(&mut self) -> Response<ResponseBody<T>> {
        self.tally.set(RequestOutcome::ErrorUnusable);
        bad_gateway(self.plan.why)
    }

    /// Responds with a stale response because the origin failed, if that is allowed.
    fn stale<T>(&mut self, origin: Option<StatusCode>) -> Option<Response<ResponseBody<T>>> {
        let (stored, now) = (self.plan.stored.clone()?, self.state.wall());
        let unreachable = origin
            .is_none()
            .then_some(self.state.config.stale_if_unreachable);
        let serves = stored.meta.terms.serves_error(
            &self.request.directives,
            stored.meta.age(now),
            unreachable,
        );
        if !serves || !self.plan.trusted {
            return None;
        }
        let status = CacheStatus {
            origin,
            ..CacheStatus::forwarded(self.plan.why)
        };
        let CachedResponse { response, bytes } = respond(
            &self.state.recent_heads,
            &self.request,
            &stored,
            now,
            status,
        )?;
        let outcome = origin.map_or(RequestOutcome::StaleUnreachable, |_| {
            RequestOutcome::StaleError
        });
        self.tally.set(outcome);
        self.state.counters.bytes.add(bytes);
        Some(response)
    }

    /// Forwards HEAD. The response updates the stored response to GET (RFC 9111 §4.3.5).
    async fn head<B: Default, S: InnerService<B>>(
        mut self,
        mut inner: S,
    ) -> Result<Response<ResponseBody<S::Body>>, S::Error> {
        let requested = self.state.wall();
        let request = Request::from_parts(self.request.head.clone(), B::default());
        let response = match inner.run(request).await {
            Ok(response) => response,
            Err(error) => return self.conclude(Err(error)),
        };
        if response.status() == StatusCode::NOT_MODIFIED && !self.request.is_conditional() {
            return Ok(self.bad_gateway());
        }
        if let Some(stored) = &self.plan.stored {
            head::update_stored(&self.state, &self.request, stored, &response, requested);
        }
        let failed = is_failure(response.status());
        let outcome = if failed {
            RequestOutcome::ErrorStatus
        } else {
            RequestOutcome::PassMethod
        };
        self.conclude(Ok(OriginResult::New(NewResponse::NotStored(
            response, outcome,
        ))))
    }
}

/// 502: the origin's response doesn't answer the request.
pub(crate) fn bad_gateway<T>(why: Forward) -> Response<ResponseBody<T>> {
    let detail = "the origin's response does not match the request: try again later";
    let problem = Problem::new(StatusCode::BAD_GATEWAY, "unusable-response").detail(detail);
    respond::problem(&problem, CacheStatus::forwarded(why))
}
