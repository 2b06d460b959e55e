//! GET and HEAD: what is stored, or else the origin, asked once for all who wait.

use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use ifmatch_core::problem::Problem;
use ifmatch_runtime::Clock;
use ifmatch_runtime::task::detach;

use crate::answer::{self, Answer, answer};
use crate::asked::{Asked, is_same_target};
use crate::body::ResponseBody;
use crate::fetch::{Fetch, Fetched, Kept};
use crate::flight::{Outcome, Pilot};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::credential::has_credential;
use crate::policy::reuse::{Reuse, is_failure};
use crate::policy::vary::Vary;
use crate::question::Question;
use crate::rest::resumable;
use crate::shared::{Inner, Shared};
use crate::stored::Stored;
use crate::table::{Course, Found, Role};

/// How often a request looks again after the response that it waited for proved to be for others.
const ROUNDS: usize = 3;

/// What a look into the store says.
pub(crate) enum Look<T> {
    /// This is the answer.
    Answer(Response<ResponseBody<T>>),
    /// This is the answer, and the stored response is to be validated in the background.
    AnswerAndValidate(Response<ResponseBody<T>>, Plan),
    /// The origin must be asked.
    Forward(Plan),
}

/// Why and how to ask the origin.
#[derive(Clone)]
pub(crate) struct Plan {
    why: Forward,
    /// What is stored for the request.
    pub(crate) stored: Option<Stored>,
    unshared: bool,
    /// The origin has failed for this URI before.
    pub(crate) failing: bool,
    pub(crate) course: Course,
}

impl Plan {
    /// For a request of which nothing is known.
    pub(crate) fn of_nothing(asked: &Asked) -> Self {
        let course = Course::new(Vary::default(), &asked.head.headers, &asked.implicit);
        Self { why: Forward::UriMiss, stored: None, unshared: true, failing: false, course }
    }
}

/// Looks whether a stored response can answer the request.
pub(crate) fn look<C: Clock, T>(shared: &Shared<C>, asked: &Asked) -> Look<T> {
    let now = shared.now();
    let found = shared.table.find(&asked.key, &asked.head.headers, &asked.implicit);
    let plan = |why, found: &Found| {
        let course = found.course(&asked.head.headers, &asked.implicit);
        let stored = found.stored().cloned();
        let asks_as_client = stored.as_ref().is_none_or(|stored| Question::about(stored, asked).is_of_client());
        let course = if asks_as_client { course.on(asked.condition()) } else { course };
        let terms = stored.as_ref().map(|stored| &stored.meta.terms);
        let moment = shared.moment();
        let personal = || moment < found.entry.personal_until && has_credential(&asked.head.headers);
        let unshared = moment < found.entry.unshared_until
            || personal()
            || terms.is_some_and(|terms| terms.always_validate || terms.lifetime.is_zero());
        Plan { why, stored, unshared, failing: found.entry.failing.is_some(), course }
    };
    let Some(stored) = found.stored() else {
        let same = |stored: &Stored| is_same_target(&stored.meta.selected.implicit, &asked.implicit);
        let why = if found.entry.variants.iter().any(same) { Forward::VaryMiss } else { Forward::UriMiss };
        return Look::Forward(plan(why, &found));
    };
    let age = stored.meta.age(now);
    let mut reuse = stored.meta.terms.reuse(&asked.directives, age);
    if let (Reuse::Validate, Some(failing)) = (reuse, found.entry.failing) {
        let unreachable = if failing.unreachable { shared.config.stale_if_unreachable } else { Duration::ZERO };
        if stored.meta.terms.serves_error(&asked.directives, age, unreachable) {
            reuse = if shared.moment() < failing.until { Reuse::Stale } else { Reuse::StaleWhileRevalidate };
        }
    }
    match reuse {
        Reuse::Refused => return Look::Forward(plan(Forward::Request, &found)),
        Reuse::Validate => return Look::Forward(plan(Forward::Stale, &found)),
        Reuse::Fresh | Reuse::Stale | Reuse::StaleWhileRevalidate => {}
    }
    let Some(Answer { response, bytes }) = answer(&shared.recent, asked, stored, now, CacheStatus::HIT) else {
        return Look::Forward(plan(Forward::Partial, &found));
    };
    shared.counters.hits.add(1);
    shared.counters.bytes.add(bytes);
    if reuse != Reuse::Fresh {
        shared.counters.stale.add(1);
    }
    match reuse {
        Reuse::StaleWhileRevalidate => Look::AnswerAndValidate(response, plan(Forward::Stale, &found)),
        _ => Look::Answer(response),
    }
}

/// Validates a stored response in the background, if nobody else does.
pub(crate) fn validate<C, S, B>(shared: &Arc<Shared<C>>, asked: &Asked, plan: Plan, inner: S)
where
    C: Clock,
    S: Inner<B>,
    B: Default + Send + 'static,
{
    if let Role::Pilot(pilot) = shared.table.board(&asked.key, &plan.course) {
        let fetch = Fetch::new(shared, asked, plan, Some(pilot)).unconditional();
        drop(detach(fetch.run::<B, S>(inner)));
    }
}

/// A request that the origin must be asked about.
pub(crate) struct Forwarding<C> {
    pub(crate) shared: Arc<Shared<C>>,
    pub(crate) asked: Asked,
    pub(crate) plan: Plan,
}

/// Whether a request goes on its own, and in which role.
enum Turn<T> {
    Answered(Response<ResponseBody<T>>),
    Ask(Option<Pilot>),
}

impl<C: Clock> Forwarding<C> {
    /// Waits for another request's response, or asks.
    pub(crate) async fn run<B, S>(mut self, inner: S) -> Result<Response<ResponseBody<S::Body>>, S::Error>
    where
        S: Inner<B>,
        B: Default + Send + 'static,
    {
        if self.asked.directives.only_if_cached {
            let detail = "nothing stored can answer this, and the request wants the origin not to be asked";
            let problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, "only-if-cached").detail(detail);
            return Ok(answer::problem(&problem, CacheStatus { detail: Some("only-if-cached"), ..CacheStatus::HIT }));
        }
        if self.plan.stored.is_none() {
            self.shared.counters.misses.add(1);
        }
        if self.asked.is_head() {
            return self.head(inner).await;
        }
        let pilot = match self.turn().await {
            Turn::Answered(response) => return Ok(resumable(response, &self.asked, inner)),
            Turn::Ask(pilot) => pilot,
        };
        let (detached, again) = (pilot.is_some(), inner.clone());
        let fetch = Fetch::new(&self.shared, &self.asked, self.plan.clone(), pilot);
        let fetched = if detached {
            match detach(fetch.run::<B, S>(inner)).result().await {
                Some(fetched) => fetched,
                None => return Ok(broken(self.plan.why)),
            }
        } else {
            fetch.run::<B, S>(inner).await
        };
        self.conclude(fetched).map(|response| resumable(response, &self.asked, again))
    }

    /// Waits while others ask for the same.
    async fn turn<T>(&mut self) -> Turn<T> {
        if !self.asked.is_sharable() {
            return Turn::Ask(None);
        }
        let mut failures = 0;
        for _ in 0..ROUNDS {
            if self.plan.unshared {
                return Turn::Ask(None);
            }
            let course = self.plan.course.clone();
            let flight = match self.shared.table.board(&self.asked.key, &course) {
                // It may have come between the look and now.
                Role::Pilot(pilot) => return self.again(course).map_or(Turn::Ask(Some(pilot)), Turn::Answered),
                Role::Passenger(flight) => flight,
            };
            let waited = flight.is_pending();
            let course = match self.shared.within(self.shared.config.patience, flight.outcome()).await {
                Some(Outcome::Ready(stored)) if self.selects(&stored) => match self.collapsed(&stored, waited) {
                    Some(response) => return Turn::Answered(response),
                    None if waited => return Turn::Ask(None),
                    // It has become stale while its body arrives: later requests share the next request to the origin.
                    None => {
                        self.shared.table.land(&self.asked.key, &flight);
                        course
                    }
                },
                Some(Outcome::Unmodified(stored)) if self.selects(&stored) && waited => {
                    return Turn::Answered(self.confirmed(&stored));
                }
                // It is for others. At least it tells what the responses vary by.
                Some(Outcome::Ready(stored) | Outcome::Unmodified(stored)) => {
                    course.varying(stored.meta.selected.vary.clone(), &self.asked.head.headers)
                }
                Some(Outcome::Failed(status)) => {
                    failures += 1;
                    match self.failed(status, failures) {
                        Some(turn) => return turn,
                        None => course,
                    }
                }
                // Perhaps because it found the response stored.
                Some(Outcome::Alone | Outcome::Pending) | None => {
                    return self.again(course).map_or(Turn::Ask(None), Turn::Answered);
                }
            };
            if let Some(response) = self.again(course) {
                return Turn::Answered(response);
            }
        }
        Turn::Ask(None)
    }

    /// Returns `true` if a response to another request also answers this one.
    fn selects(&self, stored: &Stored) -> bool {
        stored.is_selected(&self.asked.head.headers, &self.asked.implicit)
    }

    /// Handles a failure of the origin after `failures` attempts for other requests. Returns `None` if this request is
    /// to wait for another one, or to ask on behalf of the waiting ones.
    ///
    /// The first request may have caused a failure itself. A second failure is attributed to the origin, and all
    /// waiting requests get it without asking for themselves. Its content may be private, so it is not shared.
    fn failed<T>(&self, status: Option<StatusCode>, failures: usize) -> Option<Turn<T>> {
        if let Some(response) = self.stale(status) {
            return Some(Turn::Answered(response));
        }
        if status == Some(StatusCode::INTERNAL_SERVER_ERROR) {
            return Some(Turn::Ask(None));
        }
        (failures > 1).then(|| {
            let detail = "the origin fails: try again later";
            let problem = Problem::new(status.unwrap_or(StatusCode::BAD_GATEWAY), "origin-failed").detail(detail);
            let status = CacheStatus { collapsed: true, ..CacheStatus::forwarded(self.plan.why) };
            let mut response = answer::problem(&problem, status);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            self.shared.counters.coalesced.add(1);
            Turn::Answered(response)
        })
    }

    /// Answers with the origin's 304 to another request with the same conditions.
    fn confirmed<T>(&self, stored: &Stored) -> Response<ResponseBody<T>> {
        self.shared.counters.coalesced.add(1);
        let status = CacheStatus { collapsed: true, ..CacheStatus::forwarded(self.plan.why) };
        answer::confirmed(&self.shared.recent, &self.asked, stored, self.shared.now(), status)
    }

    /// Looks into the store again, and goes on on this course if nothing is there.
    fn again<T>(&mut self, course: Course) -> Option<Response<ResponseBody<T>>> {
        match look(&self.shared, &self.asked) {
            Look::Answer(response) | Look::AnswerAndValidate(response, _) => Some(response),
            Look::Forward(plan) => {
                self.plan = Plan { course, ..plan };
                None
            }
        }
    }

    /// Answers with the response to another request, if that also answers this one. A request that has `waited` may use
    /// it even if it is stale by now, since the response to its own request would be, too.
    fn collapsed<T>(&self, stored: &Stored, waited: bool) -> Option<Response<ResponseBody<T>>> {
        let now = self.shared.now();
        let terms = &stored.meta.terms;
        let reuse = terms.reuse(&self.asked.directives, stored.meta.age(now));
        let fresh = matches!(reuse, Reuse::Fresh | Reuse::StaleWhileRevalidate);
        let usable = fresh || waited && reuse == Reuse::Validate && terms.is_for_others();
        if !usable || !self.shared.table.is_valid(&self.asked.key, stored) {
            return None;
        }
        let status = CacheStatus { collapsed: true, ..CacheStatus::forwarded(self.plan.why) };
        let Answer { response, bytes } = answer(&self.shared.recent, &self.asked, stored, now, status)?;
        self.shared.counters.coalesced.add(1);
        self.shared.counters.bytes.add(bytes);
        Some(response)
    }

    /// Turns what came into the answer.
    fn conclude<T, E>(&self, fetched: Result<Fetched<T>, E>) -> Result<Response<ResponseBody<T>>, E> {
        let status = CacheStatus::forwarded(self.plan.why);
        let now = self.shared.now();
        match fetched {
            Err(error) => self.stale(None).ok_or(error),
            Ok(Fetched::Stored(stored, origin)) => {
                let status = CacheStatus { origin: Some(origin), ..status };
                Ok(answer(&self.shared.recent, &self.asked, &stored, now, status)
                    .map_or_else(|| broken(self.plan.why), |answer| answer.response))
            }
            Ok(Fetched::Kept(Kept::Fresh(mut head, stored, reader))) => {
                let status = CacheStatus { stored: reader.has_room(), ..status }
                    .with_ttl(stored.meta.terms.lifetime, stored.meta.age(now));
                status.append_to(&mut head.headers);
                if self.plan.stored.is_some() && answer::is_unmodified(&self.asked, &stored.meta) {
                    return Ok(answer::not_modified(head.headers));
                }
                Ok(Response::from_parts(head, ResponseBody::broadcast(reader)))
            }
            Ok(Fetched::Kept(Kept::Passed(response))) => {
                if is_failure(response.status())
                    && let Some(answer) = self.stale(Some(response.status()))
                {
                    return Ok(answer);
                }
                let (mut head, body) = response.into_parts();
                status.append_to(&mut head.headers);
                Ok(Response::from_parts(head, ResponseBody::inner(body)))
            }
            Ok(Fetched::Unusable) => Ok(broken(self.plan.why)),
        }
    }

    /// Answers by a stale response because the origin has failed, if that is allowed.
    fn stale<T>(&self, origin: Option<StatusCode>) -> Option<Response<ResponseBody<T>>> {
        let (stored, now) = (self.plan.stored.as_ref()?, self.shared.now());
        let unreachable = if origin.is_some() { Duration::ZERO } else { self.shared.config.stale_if_unreachable };
        if !stored.meta.terms.serves_error(&self.asked.directives, stored.meta.age(now), unreachable) {
            return None;
        }
        let status = CacheStatus { origin, ..CacheStatus::forwarded(self.plan.why) };
        let Answer { response, bytes } = answer(&self.shared.recent, &self.asked, stored, now, status)?;
        self.shared.counters.stale.add(1);
        self.shared.counters.bytes.add(bytes);
        Some(response)
    }

    /// HEAD: it is passed on, and what it says updates the stored response (RFC 9111 §4.3.5).
    async fn head<B: Default, S: Inner<B>>(self, mut inner: S) -> Result<Response<ResponseBody<S::Body>>, S::Error> {
        let requested = self.shared.now();
        let request = Request::from_parts(self.asked.head.clone(), B::default());
        let response = match inner.run(request).await {
            Ok(response) => response,
            Err(error) => return self.stale(None).ok_or(error),
        };
        if response.status() == StatusCode::NOT_MODIFIED && !self.asked.is_conditional() {
            return Ok(broken(self.plan.why));
        }
        if let Some(stored) = &self.plan.stored {
            crate::head::learn(&self.shared, &self.asked, stored, &response, requested);
        }
        self.conclude(Ok(Fetched::Kept(Kept::Passed(response))))
    }
}

/// 502: the origin's response does not answer the request.
pub(crate) fn broken<T>(why: Forward) -> Response<ResponseBody<T>> {
    let detail = "the origin's answer does not fit the request: try again later";
    let problem = Problem::new(StatusCode::BAD_GATEWAY, "unusable-response").detail(detail);
    answer::problem(&problem, CacheStatus::forwarded(why))
}
