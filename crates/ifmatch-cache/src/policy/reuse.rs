//! Whether a stored response may answer a request (RFC 9111 §4, RFC 5861).

use std::time::Duration;

use super::cache_control::RequestDirectives;
use super::cdn_cache_control::Governing;

/// What a stored response allows.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_cache::policy::reuse::Terms;
///
/// let terms = Terms { lifetime: Duration::from_secs(60), ..Terms::default() };
/// assert_eq!(terms.staleness(Duration::from_secs(50)), None);
/// assert_eq!(terms.staleness(Duration::from_secs(61)), Some(Duration::from_secs(1)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How old it may become.
    pub lifetime: Duration,
    /// It must be validated before each use (`no-cache`).
    pub always_validate: bool,
    /// It must not be used when stale.
    pub never_stale: bool,
    /// How long after its lifetime it may be used while it is validated.
    pub while_revalidate: Duration,
    /// How long after its lifetime it may be used if the origin fails.
    pub if_error: Duration,
}

impl Terms {
    /// The terms that these directives and this lifetime make.
    ///
    /// `stale-while-revalidate` and `stale-if-error` are permissions given for this very response: they prevail over the
    /// prohibition that `s-maxage` includes, not over `must-revalidate` and `proxy-revalidate`.
    pub fn new(governing: &Governing, lifetime: Duration) -> Self {
        use super::cache_control::Flag;
        let told = &governing.directives;
        let strict = told.has(Flag::MustRevalidate) || told.has(Flag::ProxyRevalidate);
        let permitted = |window: Option<Duration>| window.filter(|_| !strict).unwrap_or_default();
        Self {
            lifetime,
            always_validate: told.no_cache.is_response(),
            never_stale: told.forbids_stale(),
            while_revalidate: permitted(told.stale_while_revalidate),
            if_error: permitted(told.stale_if_error),
        }
    }

    /// The terms of a response that is known to be outdated: its validators are still of use.
    #[must_use]
    pub fn outdated(&self) -> Self {
        Self { lifetime: Duration::ZERO, always_validate: true, never_stale: true, ..Self::default() }
    }

    /// Returns `true` if requests that waited for the response may use it even if it is stale on arrival: the origin
    /// has not limited it to a single use.
    pub fn is_for_others(&self) -> bool {
        !self.always_validate && !self.lifetime.is_zero()
    }

    /// How long its lifetime is over. None: it is fresh.
    pub fn staleness(&self, age: Duration) -> Option<Duration> {
        (age >= self.lifetime).then(|| age.saturating_sub(self.lifetime))
    }

    /// Whether a response of this age may answer the request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ifmatch_cache::policy::cache_control::RequestDirectives;
    /// use ifmatch_cache::policy::reuse::{Reuse, Terms};
    ///
    /// let terms = Terms { lifetime: Duration::from_secs(60), ..Terms::default() };
    /// let asked = RequestDirectives::default();
    /// assert_eq!(terms.reuse(&asked, Duration::from_secs(59)), Reuse::Fresh);
    /// assert_eq!(terms.reuse(&asked, Duration::from_secs(60)), Reuse::Validate);
    /// ```
    pub fn reuse(&self, asked: &RequestDirectives, age: Duration) -> Reuse {
        if asked.no_cache || asked.no_store || self.is_refused(asked, age) {
            return Reuse::Refused;
        }
        if self.always_validate {
            return Reuse::Validate;
        }
        let Some(staleness) = self.staleness(age) else { return Reuse::Fresh };
        if asked.max_stale.is_some_and(|most| staleness <= most) && !self.never_stale {
            return Reuse::Stale;
        }
        let unpicky = asked.max_age.is_none() && asked.min_fresh.is_none();
        if unpicky && staleness < self.while_revalidate { Reuse::StaleWhileRevalidate } else { Reuse::Validate }
    }

    /// Whether a response of this age may answer the request when the origin has failed (RFC 5861 §4).
    ///
    /// `unreachable` is how long after its lifetime a response may be used although nobody said so: a cache that is cut
    /// off from the origin may do so unless it was forbidden (RFC 9111 §4.2.4). It is zero where the origin has answered
    /// by an error.
    pub fn serves_error(&self, asked: &RequestDirectives, age: Duration, unreachable: Duration) -> bool {
        if asked.no_cache || asked.no_store || self.always_validate || self.is_refused(asked, age) {
            return false;
        }
        let unasked =
            if self.never_stale { Duration::ZERO } else { unreachable.max(asked.stale_if_error.unwrap_or_default()) };
        self.staleness(age).is_none_or(|staleness| staleness < self.if_error.max(unasked))
    }

    /// `max-age` and `min-fresh` of the request.
    fn is_refused(&self, asked: &RequestDirectives, age: Duration) -> bool {
        let too_old = asked.max_age.is_some_and(|most| age > most || most.is_zero()) && asked.max_stale.is_none();
        let left = self.lifetime.saturating_sub(age);
        too_old || asked.min_fresh.is_some_and(|least| left < least)
    }
}

/// What to do with a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Use it: it is fresh.
    Fresh,
    /// Use it: the request says that a stale one will do.
    Stale,
    /// Use it, and validate it in the background.
    StaleWhileRevalidate,
    /// Validate it first: it is stale, or says so.
    Validate,
    /// Validate it first: the request says so.
    Refused,
}

/// Whether a response says that the origin has failed (RFC 5861 §4).
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::reuse::is_failure;
/// assert!(is_failure(StatusCode::BAD_GATEWAY));
/// assert!(!is_failure(StatusCode::NOT_IMPLEMENTED));
/// ```
pub fn is_failure(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
