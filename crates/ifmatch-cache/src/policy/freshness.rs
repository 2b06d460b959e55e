//! The freshness lifetime of a response (RFC 9111 §4.2.1, §4.2.2).

use std::time::Duration;

use http::header::{DATE, EXPIRES, LAST_MODIFIED, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use ifmatch_core::date::{HttpDate, Timestamp};

use super::Audience;
use super::age::unix;
use super::cache_control::{Flag, pragma_is_no_cache};
use super::cdn_cache_control::Governing;
use super::fields;
use super::resource_rules::ResourceRules;
use super::storable::is_heuristic_status;

/// The heuristic for a lifetime that the origin doesn't state: a fraction of the time since the last modification, or a
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The fraction, in percent.
    pub percent: u32,
    /// Maximum lifetime by the last modification.
    pub cap: Duration,
    /// Lifetime if the fraction yields none, for example without `Last-Modified`.
    pub default: Duration,
    /// Lifetime of client and server errors, instead of the above.
    pub errors: Option<Duration>,
}

/// 10 %, as RFC 9111 §4.2.2 suggests, at most a day, and no default lifetime.
impl Default for Heuristic {
    fn default() -> Self {
        Self {
            percent: 10,
            cap: Duration::from_hours(24),
            default: Duration::ZERO,
            errors: None,
        }
    }
}

/// Returns the lifetime of a response received at `received`, at the age `initial_age`, for a request with these header fields.
///
/// A response states its lifetime by `s-maxage`, `max-age` or `Expires` minus `Date`, in this order. With an invalid or repeated
/// `Expires`, it is stale. An operator's [override](ResourceRules::override_ttl) replaces what it states.
///
/// A response that states none has the override as well, or the operator's [rule](ResourceRules::ttl) for the status, or the
/// heuristic, which applies only to statuses that the RFCs allow, or to a `public` response. None of them applies with `Pragma:
/// no-cache`, nor in a shared cache if the request has a [credential](super::credential), since such a response may be private.
/// An operator's lifetimes count from the arrival, so they are longer by the age at that time, which another cache in front of the
/// origin states. The last two don't apply to a response that sets a cookie, either. With an override, the rules for
/// [storing](super::storable::StorableRules::share_cookies) decide about the cookie.
///
/// ```
/// use std::time::Duration;
/// use http::{header, HeaderMap, HeaderValue, StatusCode};
/// use ifmatch_cache::policy::resource_rules::ResourceRules;
/// use ifmatch_cache::policy::{Audience, cdn_cache_control::Governing, freshness::lifetime};
/// use ifmatch_core::date::Timestamp;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60, s-maxage=5"));
/// let governing = Governing::of(&headers, Audience::Shared);
/// let now = Timestamp::from_micros(0);
/// let rules = ResourceRules::default();
/// let zero = Duration::ZERO;
/// let lifetime = lifetime(&HeaderMap::new(), StatusCode::OK, &headers, &governing, now, zero, None, &rules);
/// assert_eq!(lifetime, Duration::from_secs(5));
/// ```
#[expect(
    clippy::too_many_arguments,
    reason = "each is another thing that the lifetime depends on"
)]
pub fn lifetime(
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    governing: &Governing,
    received: Timestamp,
    initial_age: Duration,
    heuristic: Option<Heuristic>,
    rules: &ResourceRules,
) -> Duration {
    let from_arrival = |lifetime: Duration| lifetime.saturating_add(initial_age);
    let overriding = rules.override_ttl.get(status).map(from_arrival);
    if let Some(stated) = explicit(response, governing, received) {
        return overriding.unwrap_or(stated);
    }
    let own = governing.audience == Audience::Private;
    if !own && rules.has_credential(request) || pragma_is_no_cache(response) {
        return Duration::ZERO;
    }
    if let Some(lifetime) = overriding {
        return lifetime;
    }
    if !own && response.contains_key(SET_COOKIE) {
        return Duration::ZERO;
    }
    let cacheable = is_heuristic_status(status) || governing.directives.has(Flag::Public);
    let guessed = || {
        heuristic
            .filter(|_| cacheable)
            .map(|heuristic| guess(status, response, received, heuristic))
    };
    rules
        .ttl
        .get(status)
        .map(from_arrival)
        .or_else(guessed)
        .unwrap_or_default()
}

/// Returns the lifetime stated by the origin, if any.
pub fn explicit(
    response: &HeaderMap,
    governing: &Governing,
    received: Timestamp,
) -> Option<Duration> {
    let directives = &governing.directives;
    directives.s_maxage.or(directives.max_age).or_else(|| {
        let counts = !governing.targeted && response.contains_key(EXPIRES);
        counts.then(|| expires(response, received))
    })
}

fn expires(response: &HeaderMap, received: Timestamp) -> Duration {
    let end = fields::date(response, EXPIRES).map(HttpDate::unix);
    since(end.unwrap_or(i64::MIN), date(response, received))
}

fn guess(
    status: StatusCode,
    response: &HeaderMap,
    received: Timestamp,
    heuristic: Heuristic,
) -> Duration {
    if let Some(lifetime) = heuristic
        .errors
        .filter(|_| status.is_client_error() || status.is_server_error())
    {
        return lifetime;
    }
    let modified = fields::date(response, LAST_MODIFIED);
    let unchanged = modified
        .map(|modified| since(date(response, received), modified.unix()))
        .unwrap_or_default();
    let lifetime = (unchanged.saturating_mul(heuristic.percent) / 100).min(heuristic.cap);
    if lifetime.is_zero() {
        heuristic.default
    } else {
        lifetime
    }
}

/// Returns `Date`, or else the time of arrival.
fn date(response: &HeaderMap, received: Timestamp) -> i64 {
    fields::date(response, DATE).map_or_else(|| unix(received), HttpDate::unix)
}

fn since(end: i64, start: i64) -> Duration {
    Duration::from_secs(u64::try_from(end.saturating_sub(start)).unwrap_or_default())
}
