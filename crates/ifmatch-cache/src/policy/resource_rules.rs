//! An operator's rules for some resources: lifetimes by status, how long stale responses may be used, or no caching at all.

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, StatusCode};

use super::credential::is_credential;

/// Rules for the responses of some resources. A request has them as an extension, an `Arc<ResourceRules>`.
///
/// No rule lets a shared cache store what the origin forbids to share: a response that is `private` or `no-store`, sets a cookie, or
/// answers a request with `Authorization`. An operator who wants that changes the fields of the response.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ifmatch_cache::policy::resource_rules::{Lifetimes, ResourceRules};
///
/// let ttl = Lifetimes::of_successes(Duration::from_mins(10));
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Arc::new(ResourceRules { ttl, ..ResourceRules::default() }));
/// assert_eq!(ResourceRules::of(request.extensions()).ttl.get(http::StatusCode::OK), Some(Duration::from_mins(10)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRules {
    /// `true` to look nothing up and to store nothing. Writes still invalidate.
    pub is_off: bool,
    /// Lifetimes of responses that state none, instead of guesses. They also permit storing a status that isn't
    /// cacheable by itself, such as 302. They don't apply to requests with [credentials](super::credential), since the
    /// response may be private.
    pub ttl: Lifetimes,
    /// Lifetimes in place of those that responses state. A response that states none has them, too, and may be stored whatever its
    /// status, unless its request has [credentials](super::credential).
    pub override_ttl: Lifetimes,
    /// How long after its lifetime a response may be used while it is revalidated, unless it states or forbids that.
    pub while_revalidate: Option<Duration>,
    /// How long after its lifetime a response may be used in place of the origin's error, unless it states or forbids
    /// that.
    pub if_error: Option<Duration>,
    /// Request fields that the origin doesn't get as clients send them, so no response depends on them.
    pub unsent: Vec<HeaderName>,
}

/// Rules of requests without any.
const NONE: &ResourceRules = &ResourceRules {
    is_off: false,
    ttl: Lifetimes(Vec::new()),
    override_ttl: Lifetimes(Vec::new()),
    while_revalidate: None,
    if_error: None,
    unsent: Vec::new(),
};

impl ResourceRules {
    /// Returns a request's rules.
    pub fn of(request: &Extensions) -> &Self {
        request.get::<Arc<Self>>().map_or(NONE, |rules| rules)
    }

    /// Returns `true` if a request has a field that identifies its client, and that the origin gets.
    pub fn has_credential(&self, request: &HeaderMap) -> bool {
        request
            .keys()
            .any(|name| is_credential(name.as_str()) && !self.unsent.contains(name))
    }
}

/// Lifetimes by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes(Vec<(StatusCode, Duration)>);

impl Lifetimes {
    /// The statuses without errors that a cache may store though their responses state nothing (RFC 9110 §15.1).
    const SUCCESSES: [StatusCode; 6] = [
        StatusCode::OK,
        StatusCode::NON_AUTHORITATIVE_INFORMATION,
        StatusCode::NO_CONTENT,
        StatusCode::MULTIPLE_CHOICES,
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::PERMANENT_REDIRECT,
    ];

    /// One lifetime for 200, 203, 204, 300, 301 and 308: no error, and no redirection of one client, such as that to a login.
    pub fn of_successes(lifetime: Duration) -> Self {
        Self::SUCCESSES
            .into_iter()
            .map(|status| (status, lifetime))
            .collect()
    }

    /// Returns the lifetime of responses with this status. A 206 has the lifetime of the 200 that it's part of.
    pub fn get(&self, status: StatusCode) -> Option<Duration> {
        let status = if status == StatusCode::PARTIAL_CONTENT {
            StatusCode::OK
        } else {
            status
        };
        self.0
            .iter()
            .find(|(known, _)| *known == status)
            .map(|(_, lifetime)| *lifetime)
    }
}

impl FromIterator<(StatusCode, Duration)> for Lifetimes {
    fn from_iter<T: IntoIterator<Item = (StatusCode, Duration)>>(lifetimes: T) -> Self {
        Self(lifetimes.into_iter().collect())
    }
}
