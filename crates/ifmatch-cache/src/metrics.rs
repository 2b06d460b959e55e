//! The counters of a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::policy::cache_status::Forward;
use crate::policy::storable::Refusal;
use crate::state::CacheState;

/// Defines the outcomes with their labels, so each has exactly one pair.
macro_rules! labelled {
    ($(#[$about:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident = ($($label:literal),+),)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Returns the labels of its counter.
            fn labels(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($label),+],)*
                }
            }
        }
    };
}

labelled! {
    /// The outcome of a request. Every request has exactly one.
    Outcome:
    /// Answered with a fresh stored response, perhaps after waiting for it.
    Hit = ("hit", "fresh"),
    /// Answered with the response to a concurrent request while it arrived.
    Collapsed = ("hit", "collapsed"),
    /// Answered with a stored response that the origin confirmed with 304.
    Revalidated = ("revalidated", "confirmed"),
    /// Answered with a stale response that is revalidated in the background.
    StaleWhileRevalidate = ("stale", "while-revalidate"),
    /// Answered with a stale response, since the client accepts one (`max-stale`).
    StaleAccepted = ("stale", "max-stale"),
    /// Answered with a stale response, since the origin failed with 500, 502, 503 or 504.
    StaleError = ("stale", "error"),
    /// Answered with a stale response, since the origin couldn't be reached or gave no response.
    StaleUnreachable = ("stale", "unreachable"),
    /// Answered by the origin: nothing was stored for the URI. The response is being stored.
    Miss = ("miss", "uri"),
    /// Answered by the origin: no stored variant matched. The response is being stored.
    MissVariant = ("miss", "vary"),
    /// Answered by the origin: it has replaced the stored response, which was stale.
    MissStale = ("miss", "stale"),
    /// Answered by the origin, as the client's `Cache-Control` required. The response is being stored.
    MissRequest = ("miss", "request"),
    /// Answered with bytes from the origin: only other parts were stored.
    MissPartial = ("miss", "partial"),
    /// Answered with 504: nothing was stored that could be used, and the client ruled out the origin.
    OnlyIfCached = ("miss", "only-if-cached"),
    /// Passed: a safe method that isn't cached, or HEAD.
    PassMethod = ("pass", "method"),
    /// Passed: the request has content, an upgrade, a condition for the origin, or no unambiguous host.
    PassRequest = ("pass", "request"),
    /// Passed: the request has `Authorization`, and the response doesn't permit sharing.
    PassAuthorization = ("pass", "authorization"),
    /// Passed: the request has another credential, and the response doesn't permit sharing.
    PassCredential = ("pass", "credential"),
    /// Passed: the response sets a cookie and isn't `public`.
    PassCookie = ("pass", "cookie"),
    /// Passed: `no-store` in the request or the response.
    PassNoStore = ("pass", "no-store"),
    /// Passed: the response is `private`.
    PassPrivate = ("pass", "private"),
    /// Passed: `Vary` matches no other request.
    PassVary = ("pass", "vary"),
    /// Passed: the status isn't cacheable, such as the 304 to the client's own condition.
    PassStatus = ("pass", "status"),
    /// Passed: the response has neither a lifetime nor a validator.
    PassLifetime = ("pass", "lifetime"),
    /// Passed: the body or the head is too large.
    PassTooLarge = ("pass", "too-large"),
    /// Passed: the length or the range of the response is malformed.
    PassMalformed = ("pass", "malformed"),
    /// Passed: the response was invalidated while it was requested.
    PassInvalidated = ("pass", "invalidated"),
    /// Failed: the origin couldn't be reached, or gave no response.
    ErrorUnreachable = ("error", "unreachable"),
    /// Failed: the origin answered with 500, 502, 503 or 504.
    ErrorStatus = ("error", "status"),
    /// Failed: the response doesn't answer the request.
    ErrorUnusable = ("error", "unusable"),
    /// Forwarded to change the resource: an unsafe method.
    Write = ("write", "method"),
    /// The client left before its response began.
    Abandoned = ("abandoned", "client"),
}

impl Outcome {
    /// Returns the general outcome: `hit`, `revalidated`, `stale`, `miss`, `pass`, `error`, `write` or `abandoned`.
    pub fn name(self) -> &'static str {
        self.labels()[0]
    }

    /// Returns the reason for it.
    pub fn reason(self) -> &'static str {
        self.labels()[1]
    }

    /// Returns the outcome of a request that was forwarded for this reason, if its response is being stored.
    pub(crate) fn stored(why: Forward) -> Self {
        match why {
            Forward::UriMiss => Self::Miss,
            Forward::VaryMiss => Self::MissVariant,
            Forward::Stale => Self::MissStale,
            Forward::Request => Self::MissRequest,
            Forward::Partial => Self::MissPartial,
            Forward::Method => Self::PassMethod,
            Forward::Bypass => Self::PassRequest,
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Method => Self::PassMethod,
            Refusal::Status | Refusal::NotAllowed => Self::PassStatus,
            Refusal::NoStore => Self::PassNoStore,
            Refusal::Private => Self::PassPrivate,
            Refusal::Authorization => Self::PassAuthorization,
            Refusal::Credential => Self::PassCredential,
            Refusal::Cookie => Self::PassCookie,
            Refusal::Vary => Self::PassVary,
        }
    }
}

labelled! {
    /// The reason why a storable response wasn't stored in the end.
    NotStored:
    /// The body broke off, differed from its declared length, or stalled without readers.
    Broken = ("broken"),
    /// The body was longer than the limit, or the memory for arriving bodies was full.
    TooLarge = ("too-large"),
    /// The folder was full, or couldn't be written.
    Disk = ("disk"),
    /// The resource was changed or purged while the body arrived.
    Invalidated = ("invalidated"),
}

impl NotStored {
    /// Returns the label of its counter.
    pub fn reason(self) -> &'static str {
        self.labels()[0]
    }
}

labelled! {
    /// The cause of an invalidation.
    Invalidation:
    /// An unsafe method.
    Write = ("write"),
    /// A purge.
    Purge = ("purge"),
    /// A soft purge.
    SoftPurge = ("soft-purge"),
}

impl Invalidation {
    /// Returns the label of its counter.
    pub fn cause(self) -> &'static str {
        self.labels()[0]
    }
}

/// The cache's counters since the start of the process, and its current size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    outcomes: Counts<{ Outcome::ALL.len() }>,
    not_stored: Counts<{ NotStored::ALL.len() }>,
    invalidated: Counts<{ Invalidation::ALL.len() }>,
    /// Stored responses confirmed by the origin with 304, also in the background.
    pub confirmed: u64,
    /// Responses stored completely.
    pub stored: u64,
    /// Body bytes sent from the cache, except those of responses that the origin has just completed.
    pub bytes: u64,
    /// URIs evicted because the cache was full.
    pub evictions: u64,
    /// Current size of the stored responses in memory, in bytes.
    pub stored_bytes: u64,
    /// Current size of the bodies on disk, in bytes.
    pub disk_bytes: u64,
    /// Current size of evicted responses that are on their way to the disk, in bytes.
    pub evicted_bytes: u64,
}

impl Metrics {
    /// Returns the number of requests with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.0[outcome as usize]
    }

    /// Returns the number of requests with an outcome of this [name](Outcome::name).
    pub fn named(&self, name: &str) -> u64 {
        Outcome::ALL
            .into_iter()
            .filter(|outcome| outcome.name() == name)
            .map(|outcome| self.count(outcome))
            .sum()
    }

    /// Returns the number of requests that have an outcome.
    pub fn requests(&self) -> u64 {
        self.outcomes.0.iter().sum()
    }

    /// Returns the number of storable responses that weren't stored for this reason.
    pub fn not_stored(&self, reason: NotStored) -> u64 {
        self.not_stored.0[reason as usize]
    }

    /// Returns the number of URIs with stored responses that were invalidated for this cause. The groups of a write don't count.
    pub fn invalidated(&self, cause: Invalidation) -> u64 {
        self.invalidated.0[cause as usize]
    }
}

/// Counts by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts<const N: usize>([u64; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// The counters of a cache, which all requests add to.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    outcomes: [CacheCounter; Outcome::ALL.len()],
    not_stored: [CacheCounter; NotStored::ALL.len()],
    invalidated: [CacheCounter; Invalidation::ALL.len()],
    pub(crate) confirmed: CacheCounter,
    pub(crate) stored: CacheCounter,
    pub(crate) bytes: CacheCounter,
}

impl CacheCounters {
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].add(1);
    }

    pub(crate) fn not_stored(&self, reason: NotStored) {
        self.not_stored[reason as usize].add(1);
    }

    pub(crate) fn invalidated(&self, cause: Invalidation, count: u64) {
        self.invalidated[cause as usize].add(count);
    }

    /// Returns the current counts.
    pub(crate) fn metrics(
        &self,
        evictions: u64,
        stored_bytes: u64,
        disk_bytes: u64,
        evicted_bytes: u64,
    ) -> Metrics {
        Metrics {
            outcomes: Counts(std::array::from_fn(|at| self.outcomes[at].get())),
            not_stored: Counts(std::array::from_fn(|at| self.not_stored[at].get())),
            invalidated: Counts(std::array::from_fn(|at| self.invalidated[at].get())),
            confirmed: self.confirmed.get(),
            stored: self.stored.get(),
            bytes: self.bytes.get(),
            evictions,
            stored_bytes,
            disk_bytes,
            evicted_bytes,
        }
    }
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct CacheCounter(AtomicU64);

impl CacheCounter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request without an outcome so far. Counts it when dropped.
pub(crate) struct RequestTally {
    state: Arc<CacheState>,
    outcome: Outcome,
}

impl RequestTally {
    /// Begins with [`Outcome::Abandoned`]: the client may leave at any time.
    pub(crate) fn new(state: &Arc<CacheState>) -> Self {
        Self::of(state, Outcome::Abandoned)
    }

    /// Begins with an outcome that is known in advance.
    pub(crate) fn of(state: &Arc<CacheState>, outcome: Outcome) -> Self {
        Self {
            state: Arc::clone(state),
            outcome,
        }
    }

    pub(crate) fn set(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for RequestTally {
    fn drop(&mut self) {
        self.state.counters.ended(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_labels_of_its_own() {
        let labels: std::collections::HashSet<_> =
            Outcome::ALL.map(Outcome::labels).into_iter().collect();
        assert_eq!(labels.len(), Outcome::ALL.len());
        assert!(
            Outcome::ALL
                .iter()
                .enumerate()
                .all(|(at, outcome)| *outcome as usize == at)
        );
    }
}
