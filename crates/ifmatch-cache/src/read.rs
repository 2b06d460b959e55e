//! GET and HEAD: what is stored, or else the origin, asked once for all who wait.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use ifmatch_core::problem::Problem;
use ifmatch_store::Clock;
use ifmatch_store::task::detach;

use crate::answer::{self, Answer, answer};
use crate::asked::{Asked, is_same_target};
use crate::body::ResponseBody;
use crate::fetch::{Fetch, Fetched, Kept};
use crate::flight::{Outcome, Pilot};
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::reuse::{Reuse, is_failure};
use crate::policy::vary::Vary;
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
    pub(crate) course: Course,
}

impl Plan {
    /// For a request of which nothing is known.
    pub(crate) fn of_nothing(asked: &Asked) -> Self {
        let course = Course::new(Vary::default(), &asked.head.headers, &asked.implicit);
        Self { why: Forward::UriMiss, stored: None, unshared: true, course }
    }
}

/// Looks whether a stored response can answer the request.
pub(crate) fn look<C: Clock, T>(shared: &Shared<C>, asked: &Asked) -> Look<T> {
    let now = shared.now();
    let found = shared.table.find(&asked.key, &asked.head.headers, &asked.implicit, now);
    let plan = |why, found: &Found| {
        let course = found.course(&asked.head.headers, &asked.implicit);
        let stored = found.stored().cloned();
        let terms = stored.as_ref().map(|stored| &stored.meta.terms);
        let unshared = found.unshared || terms.is_some_and(|terms| terms.always_validate || terms.lifetime.is_zero());
        Plan { why, stored, unshared, course }
    };
    let Some(stored) = found.stored() else {
        let same = |stored: &Stored| is_same_target(&stored.meta.selected.implicit, &asked.implicit);
        let why = if found.entry.variants.iter().any(same) { Forward::VaryMiss } else { Forward::UriMiss };
        return Look::Forward(plan(why, &found));
    };
    let reuse = stored.meta.terms.reuse(&asked.directives, stored.meta.age(now));
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
            Turn::Answered(response) => return Ok(response),
            Turn::Ask(pilot) => pilot,
        };
        let detached = pilot.is_some();
        let fetch = Fetch::new(&self.shared, &self.asked, self.plan.clone(), pilot);
        let fetched = if detached {
            match detach(fetch.run::<B, S>(inner)).result().await {
                Some(fetched) => fetched,
                None => return Ok(broken(self.plan.why)),
            }
        } else {
            fetch.run::<B, S>(inner).await
        };
        self.conclude(fetched)
    }

    /// Waits while others ask for the same.
    async fn turn<T>(&mut self) -> Turn<T> {
        if !self.asked.is_sharable() {
            return Turn::Ask(None);
        }
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
            let course = match self.shared.within(self.shared.config.patience, flight.outcome()).await {
                Some(Outcome::Ready(stored)) if stored.is_selected(&self.asked.head.headers, &self.asked.implicit) => {
                    return self.collapsed(&stored).map_or(Turn::Ask(None), Turn::Answered);
                }
                // It is for others. At least it tells what the responses vary by.
                Some(Outcome::Ready(stored)) => {
                    let vary = stored.meta.selected.vary.clone();
                    Course::new(vary, &self.asked.head.headers, &self.asked.implicit)
                }
                Some(Outcome::Failed(status)) => return self.stale(status).map_or(Turn::Ask(None), Turn::Answered),
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

    /// Answers by the response to another request, if it may be used for this one.
    fn collapsed<T>(&self, stored: &Stored) -> Option<Response<ResponseBody<T>>> {
        let now = self.shared.now();
        let reuse = stored.meta.terms.reuse(&self.asked.directives, stored.meta.age(now));
        let usable = matches!(reuse, Reuse::Fresh | Reuse::StaleWhileRevalidate);
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
                let status =
                    CacheStatus { stored: true, ..status }.with_ttl(stored.meta.terms.lifetime, stored.meta.age(now));
                status.append_to(&mut head.headers);
                if self.plan.stored.is_some() && answer::is_unmodified(&self.asked, &stored.meta) {
                    return Ok(answer::not_modified(head.headers));
                }
                Ok(Response::from_parts(head, ResponseBody::flow(reader)))
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
        let unreachable =
            if origin.is_some() { std::time::Duration::ZERO } else { self.shared.config.stale_if_unreachable };
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

/// 502: the origin's answer is none to what was asked.
pub(crate) fn broken<T>(why: Forward) -> Response<ResponseBody<T>> {
    let detail = "the origin's answer does not fit the request: try again later";
    let problem = Problem::new(StatusCode::BAD_GATEWAY, "unusable-response").detail(detail);
    answer::problem(&problem, CacheStatus::forwarded(why))
}
