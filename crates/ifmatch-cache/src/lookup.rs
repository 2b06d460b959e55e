//! The lookup: whether a stored response can answer a request, and how to ask the origin if not.

use std::borrow::Cow;

use http::Response;

use crate::fetch::revalidation::Revalidation;
use crate::fetch::single_flight::FlightKey;
use crate::metrics::Outcome;
use crate::policy::cache_status::{CacheStatus, Forward};
use crate::policy::resource_rules::ResourceRules;
use crate::policy::reuse::Reuse;
use crate::policy::vary::Vary;
use crate::request::{CacheRequest, is_same_target};
use crate::respond::response_body::ResponseBody;
use crate::respond::{CachedResponse, respond};
use crate::state::CacheState;
use crate::store::stored_response::StoredResponse;
use crate::store::table::FoundEntry;

/// The result of a lookup.
pub(crate) enum LookupResult<T> {
    /// The store has the response.
    Hit(Response<ResponseBody<T>>, Outcome),
    /// The store has a stale response, which is to be revalidated in the background.
    HitAndRevalidate(Response<ResponseBody<T>>, Outcome, ForwardPlan),
    /// The origin must be asked.
    Forward(ForwardPlan),
}

/// Why and how to ask the origin.
#[derive(Clone)]
pub(crate) struct ForwardPlan {
    pub(crate) why: Forward,
    /// The stored response that the request selects.
    pub(crate) stored: Option<StoredResponse>,
    /// `true` if the response isn't expected to be shareable, so no request should wait for it.
    pub(crate) unshared: bool,
    /// `true` if stored responses could be used without validation when `stored` was looked up.
    pub(crate) trusted: bool,
    /// `true` if the last request for this URI failed.
    pub(crate) failing: bool,
    pub(crate) flight_key: FlightKey,
}

impl ForwardPlan {
    /// Returns the plan for a request that wasn't looked up.
    pub(crate) fn without_lookup(request: &CacheRequest) -> Self {
        let flight_key = FlightKey::new(
            Vary::default(),
            &request.head.headers,
            &request.implicit_key,
        );
        Self {
            why: Forward::UriMiss,
            stored: None,
            unshared: true,
            trusted: false,
            failing: false,
            flight_key,
        }
    }

    fn new(
        state: &CacheState,
        request: &CacheRequest,
        found: &FoundEntry,
        trusted: bool,
        why: Forward,
    ) -> Self {
        let flight_key = FlightKey::expected(found, &request.head.headers, &request.implicit_key);
        let stored = found.stored().cloned();
        let is_as_sent = stored
            .as_ref()
            .is_none_or(|stored| Revalidation::of(stored, request).is_none());
        let flight_key = if is_as_sent {
            flight_key.with_condition(request.condition())
        } else {
            flight_key
        };
        let terms = stored.as_ref().map(|stored| &stored.meta.terms);
        let now = state.now();
        let has_credential =
            || ResourceRules::of(&request.head.extensions).has_credential(&request.head.headers);
        let personal = || now < found.entry.personal_until && has_credential();
        // A request that began earlier may have seen a response that was purged elsewhere since.
        let unshared = !trusted
            || now < found.entry.unshared_until
            || personal()
            || terms.is_some_and(|terms| terms.always_validate || terms.lifetime.is_zero());
        Self {
            why,
            stored,
            unshared,
            trusted,
            failing: found.entry.failing.is_some(),
            flight_key,
        }
    }
}

/// Looks up whether a stored response can answer the request.
pub(crate) fn lookup<T>(state: &CacheState, request: &CacheRequest) -> LookupResult<T> {
    let trusted = state.is_trusted();
    let found = state
        .table
        .find(&request.key, &request.head.headers, &request.implicit_key);
    decide(state, request, &found, trusted)
}

/// Decides whether what was found can answer the request. `trusted` says if stored responses could be used without validation
/// *before* it was looked up: a purge elsewhere may have become known since, and removed it.
pub(crate) fn decide<T>(
    state: &CacheState,
    request: &CacheRequest,
    found: &FoundEntry,
    trusted: bool,
) -> LookupResult<T> {
    let now = state.wall();
    let forward =
        |why| LookupResult::Forward(ForwardPlan::new(state, request, found, trusted, why));
    let Some(stored) = found.stored() else {
        let same = |stored: &StoredResponse| {
            is_same_target(
                &stored.meta.secondary_key.implicit_key,
                &request.implicit_key,
            )
        };
        let has_variants = found.entry.variants.iter().any(same);
        return forward(if has_variants {
            Forward::VaryMiss
        } else {
            Forward::UriMiss
        });
    };
    let terms = &stored.meta.terms;
    let terms = if trusted {
        Cow::Borrowed(terms)
    } else {
        Cow::Owned(terms.unconfirmed())
    };
    let age = stored.meta.age(now);
    let mut reuse = terms.reuse(&request.directives, age);
    let mut outcome = match reuse {
        Reuse::Stale => Outcome::StaleAccepted,
        Reuse::StaleWhileRevalidate => Outcome::StaleWhileRevalidate,
        Reuse::Fresh | Reuse::Validate | Reuse::Refused => Outcome::Hit,
    };
    if let (Reuse::Validate, Some(failing)) = (reuse, found.entry.failing) {
        let unreachable = failing
            .unreachable
            .then_some(state.config.stale_if_unreachable);
        if terms.serves_error(&request.directives, age, unreachable) {
            outcome = if failing.unreachable {
                Outcome::StaleUnreachable
            } else {
                Outcome::StaleError
            };
            reuse = Reuse::StaleWhileRevalidate;
        }
    }
    // An origin that has just failed isn't asked again by each request.
    let is_resting = || {
        found
            .entry
            .failing
            .is_some_and(|failing| state.now() < failing.until)
    };
    if reuse == Reuse::StaleWhileRevalidate && is_resting() {
        reuse = Reuse::Stale;
    }
    match reuse {
        Reuse::Refused => return forward(Forward::Request),
        Reuse::Validate => return forward(Forward::Stale),
        Reuse::Fresh | Reuse::Stale | Reuse::StaleWhileRevalidate => {}
    }
    let response = respond(&state.recent_heads, request, stored, now, CacheStatus::HIT);
    let Some(CachedResponse { response, bytes }) = response else {
        return forward(Forward::Partial);
    };
    state.counters.bytes.add(bytes);
    match reuse {
        Reuse::StaleWhileRevalidate => {
            let plan = ForwardPlan::new(state, request, found, trusted, Forward::Stale);
            LookupResult::HitAndRevalidate(response, outcome, plan)
        }
        _ => LookupResult::Hit(response, outcome),
    }
}
