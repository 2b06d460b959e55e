//! Request collapsing: one request to the origin for all clients that wait for the same response.
//!
//! # Interleavings
//!
//! - **The origin takes longer than the followers wait.** One of them asks as well, and the others go on waiting: the first
//!   response, to either request, is for all. After the same time, the next one asks.
//! - **A follower comes later than the others**, so its wait ends between theirs. In each round of waiting one request asks,
//!   whenever the round of a follower ends.
//! - **The leader's request isn't sent**, because its client has too many under way. Other clients wait for a request of one of
//!   theirs: they know nothing about the origin yet.
//! - **The leader's request is the reason why the origin fails.** Other clients wait for a request of one of theirs, which that
//!   client can't join. A second client that fails shows that the origin does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use crate::policy::vary::{Selection, Vary};
use crate::request::key::CacheKey;
use crate::store::stored_response::StoredResponse;
use crate::store::table::{EntryTable, FoundEntry};

/// Requests for one URI with equal flight keys may share a response, as far as that is known before it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlightKey {
    vary: Vary,
    selection: Selection,
    implicit_key: Box<str>,
    /// The conditions and ranges that the origin evaluates.
    condition: Box<[u8]>,
    /// The client of a request that failed, perhaps because of what it asked for. Other clients collapse without it.
    apart_from: Option<IpAddr>,
}

impl FlightKey {
    /// Returns the key of a request without conditions for the origin.
    pub(crate) fn new(vary: Vary, request: &HeaderMap, implicit_key: &str) -> Self {
        let selection = vary.select(request);
        Self {
            vary,
            selection,
            implicit_key: implicit_key.into(),
            condition: Box::default(),
            apart_from: None,
        }
    }

    /// Returns the key of a request, assuming that the response will vary by the same fields as the stored ones.
    pub(crate) fn expected(found: &FoundEntry, request: &HeaderMap, implicit_key: &str) -> Self {
        let vary = found
            .entry
            .variants
            .first()
            .map(|stored| stored.meta.secondary_key.vary.clone());
        Self::new(vary.unwrap_or_default(), request, implicit_key)
    }

    /// Adds the conditions that the origin evaluates.
    #[must_use]
    pub(crate) fn with_condition(self, condition: Box<[u8]>) -> Self {
        Self { condition, ..self }
    }

    /// Returns `true` if all requests with this key have the same condition. Without one, they wait for a response that the cache
    /// validates or completes, and have any.
    pub(crate) fn has_condition(&self) -> bool {
        !self.condition.is_empty()
    }

    /// Returns the key of a request once a response has revealed the fields that it varies by.
    pub(crate) fn varying(&self, vary: Vary, request: &HeaderMap) -> Self {
        let selection = vary.select(request);
        Self {
            vary,
            selection,
            ..self.clone()
        }
    }

    /// Returns the key of a request that no longer waits for this client's others.
    #[must_use]
    pub(crate) fn apart_from(self, client: Option<IpAddr>) -> Self {
        Self {
            apart_from: client,
            ..self
        }
    }
}

/// The result of a request to the origin.
#[derive(Clone, Debug)]
pub(crate) enum FlightOutcome {
    /// The origin hasn't responded yet.
    Pending,
    /// The response can be stored; its body may still be arriving.
    Ready(StoredResponse),
    /// The condition shared by all waiting requests is false, so each gets this 304.
    Unmodified(StoredResponse),
    /// The request failed.
    Failed(FlightFailure),
    /// The response is for one client only, or the request was abandoned: the others must ask for themselves.
    Alone,
}

/// A failure of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlightFailure {
    /// `false` if the origin wasn't asked, for a reason that concerns this request only.
    pub(crate) is_of_origin: bool,
    /// `None` if the origin didn't respond.
    pub(crate) status: Option<StatusCode>,
    /// The client of the request that failed.
    pub(crate) client: Option<IpAddr>,
}

/// A request to the origin that others can wait for.
#[derive(Debug)]
pub(crate) struct Flight {
    key: FlightKey,
    /// Number of requests that have asked the origin as well, because the first hasn't been answered for long.
    relieved: AtomicU32,
    /// Ordinal of its start. A later invalidation of the URI keeps new requests from joining it.
    began: u64,
    outcome: watch::Sender<FlightOutcome>,
}

impl Flight {
    /// Returns `true` until the origin has responded.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(*self.outcome.borrow(), FlightOutcome::Pending)
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&self) -> FlightOutcome {
        let mut receiver = self.outcome.subscribe();
        let outcome = receiver
            .wait_for(|outcome| !matches!(outcome, FlightOutcome::Pending))
            .await;
        outcome.map_or(FlightOutcome::Alone, |outcome| outcome.clone())
    }
}

/// All requests to the origin that others can wait for.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<FlightMap>);

/// The part of a request in a flight.
#[derive(Debug)]
pub(crate) enum FlightRole {
    /// It asks the origin for all.
    Leader(FlightLeader),
    /// It waits for the leader.
    Follower(Arc<Flight>),
}

impl Flights {
    /// Joins the flight for this key, or starts one.
    pub(crate) fn join_or_lead(
        self: &Arc<Self>,
        table: &EntryTable,
        key: &CacheKey,
        flight_key: &FlightKey,
    ) -> FlightRole {
        let mut flights = self.lock();
        let last_invalidation = table.last_invalidation(key);
        if let Some(flight) = joinable(&flights, key, flight_key, last_invalidation) {
            return FlightRole::Follower(Arc::clone(flight));
        }
        let began = table.next_ordinal();
        FlightRole::Leader(self.lead(&mut flights, key, flight_key, began))
    }

    /// Lets others join a request that began with this ordinal. Returns `None` if another one is under way, or if the URI
    /// was invalidated since.
    pub(crate) fn share(
        self: &Arc<Self>,
        table: &EntryTable,
        key: &CacheKey,
        flight_key: &FlightKey,
        began: u64,
    ) -> Option<FlightLeader> {
        let mut flights = self.lock();
        let last_invalidation = table.last_invalidation(key);
        if began < last_invalidation
            || joinable(&flights, key, flight_key, last_invalidation).is_some()
        {
            return None;
        }
        Some(self.lead(&mut flights, key, flight_key, began))
    }

    /// Lets one of the followers ask the origin as well, and tell the others, after they have waited in vain for the `round`th
    /// time. Returns `None` for all others of them.
    pub(crate) fn relieve(
        self: &Arc<Self>,
        key: &CacheKey,
        flight: &Arc<Flight>,
        round: u32,
    ) -> Option<FlightLeader> {
        let turn = flight
            .relieved
            .compare_exchange(round, round + 1, Relaxed, Relaxed);
        turn.ok().map(|_| FlightLeader {
            flights: Arc::clone(self),
            key: key.clone(),
            flight: Arc::clone(flight),
        })
    }

    /// Closes a flight: later requests don't join it.
    pub(crate) fn close(&self, key: &CacheKey, flight: &Arc<Flight>) {
        let mut flights = self.lock();
        if let Some(known) = flights.get_mut(key) {
            known.retain(|known| !Arc::ptr_eq(known, flight));
            if known.is_empty() {
                flights.remove(key);
            }
        }
    }

    fn lead(
        self: &Arc<Self>,
        flights: &mut FlightMap,
        key: &CacheKey,
        flight_key: &FlightKey,
        began: u64,
    ) -> FlightLeader {
        let outcome = watch::channel(FlightOutcome::Pending).0;
        let flight = Arc::new(Flight {
            key: flight_key.clone(),
            relieved: AtomicU32::new(0),
            began,
            outcome,
        });
        flights
            .entry(key.clone())
            .or_default()
            .push(Arc::clone(&flight));
        FlightLeader {
            flights: Arc::clone(self),
            key: key.clone(),
            flight,
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlightMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type FlightMap = HashMap<CacheKey, Vec<Arc<Flight>>>;

fn joinable<'a>(
    flights: &'a FlightMap,
    key: &CacheKey,
    flight_key: &FlightKey,
    since: u64,
) -> Option<&'a Arc<Flight>> {
    flights
        .get(key)?
        .iter()
        .find(|flight| flight.began >= since && flight.key == *flight_key)
}

/// The request that asks the origin. Dropping it releases the followers.
#[derive(Debug)]
pub(crate) struct FlightLeader {
    flights: Arc<Flights>,
    key: CacheKey,
    flight: Arc<Flight>,
}

impl FlightLeader {
    /// Sends the outcome to all followers.
    pub(crate) fn tell(&self, outcome: FlightOutcome) {
        self.flight.outcome.send_replace(outcome);
    }
}

impl Drop for FlightLeader {
    fn drop(&mut self) {
        self.flights.close(&self.key, &self.flight);
        self.flight.outcome.send_if_modified(|outcome| {
            let pending = matches!(outcome, FlightOutcome::Pending);
            if pending {
                *outcome = FlightOutcome::Alone;
            }
            pending
        });
    }
}
