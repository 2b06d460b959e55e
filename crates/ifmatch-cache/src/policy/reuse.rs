//! Reuse of stored responses (RFC 9111 §4, RFC 5861).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cache_control::RequestDirectives;
use super::cdn_cache_control::Governing;

/// The terms of use of a stored response.
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
    /// Maximum age while fresh.
    pub lifetime: Duration,
    /// Age at which a soft purge made it stale, if any.
    pub stale_since: Option<Duration>,
    /// `true` if it must be validated before each use (`no-cache`).
    pub always_validate: bool,
    /// The parties that may permit its use when it is stale.
    pub stale_use: StaleUse,
    /// Time after its lifetime during which it may be used while it is revalidated.
    pub while_revalidate: Duration,
    /// Time after its lifetime during which it may be used if the origin fails.
    pub if_error: Duration,
}

/// The parties that may permit the use of a stale response, besides its own `stale-while-revalidate` and `stale-if-error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StaleUse {
    /// Clients, operators, and this cache if the origin can't be reached.
    #[default]
    Free,
    /// None: `must-revalidate` or `proxy-revalidate`.
    Never,
    /// Operators only: `s-maxage`, which implies `proxy-revalidate` (RFC 9111 §5.2.2.10). An operator who sets a window for stale
    /// responses means those that are addressed to shared caches.
    BySetting,
}

/// How long after its lifetime a response may be used while the origin can't be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Without a setting: unless the response forbids it, by `s-maxage` as well (RFC 9111 §4.2.4).
    Default(Duration),
    /// By an operator's setting.
    Set(Duration),
}

impl Terms {
    /// Derives the terms from directives and a lifetime.
    ///
    /// `stale-while-revalidate` and `stale-if-error` override the prohibition implied by `s-maxage`, but not
    /// `must-revalidate` and `proxy-revalidate`.
    pub fn new(governing: &Governing, lifetime: Duration) -> Self {
        let directives = &governing.directives;
        let stale_use = directives.stale_use();
        let permitted = |window: Option<Duration>| {
            window
                .filter(|_| stale_use != StaleUse::Never)
                .unwrap_or_default()
        };
        Self {
            lifetime,
            stale_since: None,
            always_validate: directives.no_cache.is_response(),
            stale_use,
            while_revalidate: permitted(directives.stale_while_revalidate),
            if_error: permitted(directives.stale_if_error),
        }
    }

    /// Returns the terms of an outdated response, which is useful only for its validators.
    #[must_use]
    pub fn outdated() -> Self {
        Self {
            lifetime: Duration::ZERO,
            always_validate: true,
            stale_use: StaleUse::Never,
            ..Self::default()
        }
    }

    /// Returns the terms with these windows for `while_revalidate` (RFC 5861 §3) and `if_error` (§4), unless the response states
    /// windows of its own, forbids stale use to operators as well, or has no lifetime.
    #[must_use]
    pub fn with_default_windows(
        self,
        governing: &Governing,
        while_revalidate: Duration,
        if_error: Duration,
    ) -> Self {
        if self.stale_use == StaleUse::Never || self.always_validate || self.lifetime.is_zero() {
            return self;
        }
        let directives = &governing.directives;
        let or =
            |stated: Option<Duration>, own, default| if stated.is_some() { own } else { default };
        Self {
            while_revalidate: or(
                directives.stale_while_revalidate,
                self.while_revalidate,
                while_revalidate,
            ),
            if_error: or(directives.stale_if_error, self.if_error, if_error),
            ..self
        }
    }

    /// Returns the terms after a soft purge at this age: stale from now on, with the same permissions for stale responses.
    #[must_use]
    pub fn purged(&self, age: Duration) -> Self {
        Self {
            stale_since: Some(age),
            ..self.clone()
        }
    }

    /// Returns the terms of a response that may have been invalidated since: it must be validated before it is used.
    #[must_use]
    pub fn unconfirmed(&self) -> Self {
        let (while_revalidate, if_error) = (Duration::ZERO, Duration::ZERO);
        Self {
            stale_since: Some(Duration::ZERO),
            stale_use: StaleUse::Never,
            while_revalidate,
            if_error,
            ..self.clone()
        }
    }

    /// Returns `true` if requests that waited for the response may use it even if it is stale on arrival: the origin
    /// hasn't limited it to a single use.
    pub fn is_for_others(&self) -> bool {
        !self.always_validate && !self.lifetime.is_zero()
    }

    /// Returns the age at which it becomes stale.
    pub fn end(&self) -> Duration {
        self.stale_since
            .map_or(self.lifetime, |age| age.min(self.lifetime))
    }

    /// Returns the time since it became stale. Returns `None` while it is fresh. A soft purge holds even if the clock is
    /// set back, so the age decreases.
    pub fn staleness(&self, age: Duration) -> Option<Duration> {
        let stale = self.stale_since.is_some() || age >= self.lifetime;
        stale.then(|| age.saturating_sub(self.end()))
    }

    /// Decides if a response of this age may answer the request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ifmatch_cache::policy::cache_control::RequestDirectives;
    /// use ifmatch_cache::policy::reuse::{Reuse, Terms};
    ///
    /// let terms = Terms { lifetime: Duration::from_secs(60), ..Terms::default() };
    /// let request = RequestDirectives::default();
    /// assert_eq!(terms.reuse(&request, Duration::from_secs(59)), Reuse::Fresh);
    /// assert_eq!(terms.reuse(&request, Duration::from_secs(60)), Reuse::Validate);
    /// ```
    pub fn reuse(&self, request: &RequestDirectives, age: Duration) -> Reuse {
        if request.no_cache || request.no_store || self.is_refused(request, age) {
            return Reuse::Refused;
        }
        if self.always_validate {
            return Reuse::Validate;
        }
        let Some(staleness) = self.staleness(age) else {
            return Reuse::Fresh;
        };
        if request.max_stale.is_some_and(|most| staleness <= most)
            && self.stale_use == StaleUse::Free
        {
            return Reuse::Stale;
        }
        let unconstrained = request.max_age.is_none() && request.min_fresh.is_none();
        if unconstrained && staleness < self.while_revalidate {
            Reuse::StaleWhileRevalidate
        } else {
            Reuse::Validate
        }
    }

    /// Returns `true` if a response of this age may answer the request after the origin has failed (RFC 5861 §4).
    ///
    /// `unreachable` is how long after its lifetime a response may be used without its permission. It is `None` if the origin
    /// responded with an error.
    pub fn serves_error(
        &self,
        request: &RequestDirectives,
        age: Duration,
        unreachable: Option<Unreachable>,
    ) -> bool {
        if request.no_cache
            || request.no_store
            || self.always_validate
            || self.is_refused(request, age)
        {
            return false;
        }
        let by_client = request
            .stale_if_error
            .filter(|_| self.stale_use == StaleUse::Free);
        let by_cache = unreachable.and_then(|unreachable| match unreachable {
            Unreachable::Default(window) => {
                Some(window).filter(|_| self.stale_use == StaleUse::Free)
            }
            Unreachable::Set(window) => Some(window).filter(|_| self.stale_use != StaleUse::Never),
        });
        let longest = [by_client, by_cache]
            .into_iter()
            .flatten()
            .fold(self.if_error, Duration::max);
        self.staleness(age)
            .is_none_or(|staleness| staleness < longest)
    }

    /// Checks `max-age` and `min-fresh` of the request.
    fn is_refused(&self, request: &RequestDirectives, age: Duration) -> bool {
        let too_old = request
            .max_age
            .is_some_and(|most| age > most || most.is_zero())
            && request.max_stale.is_none();
        let left = self.end().saturating_sub(age);
        too_old || request.min_fresh.is_some_and(|least| left < least)
    }
}

/// A decision about the use of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Use it, since it is fresh.
    Fresh,
    /// Use it, since the request accepts a stale one.
    Stale,
    /// Use it, and revalidate it in the background.
    StaleWhileRevalidate,
    /// Validate it first, since it is stale or has `no-cache`.
    Validate,
    /// Validate it first, since the request requires it.
    Refused,
}

/// Returns `true` for statuses that mean a failure of the origin (RFC 5861 §4).
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
