//! Rules for storing responses (RFC 9111 §3).

use http::header::{AUTHORIZATION, EXPIRES, RANGE, SET_COOKIE};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::Audience;
use super::cache_control::{Flag, RequestDirectives};
use super::cdn_cache_control::Governing;
use super::resource_rules::ResourceRules;
use super::vary::Vary;

/// A request and the head of its response.
///
/// ```
/// use http::{HeaderMap, Method, StatusCode};
/// use ifmatch_cache::policy::cdn_cache_control::Governing;
/// use ifmatch_cache::policy::resource_rules::ResourceRules;
/// use ifmatch_cache::policy::storable::{Exchange, Refusal, StorableRules};
///
/// let headers = HeaderMap::new();
/// let exchange = Exchange {
///     method: &Method::GET,
///     request: &headers,
///     status: StatusCode::CREATED,
///     response: &headers,
///     governing: &Governing::default(),
///     rules: StorableRules::default(),
///     resource: &ResourceRules::default(),
/// };
/// assert_eq!(exchange.refusal(), Some(Refusal::NotAllowed));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's header fields.
    pub request: &'a HeaderMap,
    /// The response's status.
    pub status: StatusCode,
    /// The response's header fields.
    pub response: &'a HeaderMap,
    /// The response's caching directives.
    pub governing: &'a Governing,
    /// Rules set by the operator.
    pub rules: StorableRules,
    /// Rules set by the operator for this resource.
    pub resource: &'a ResourceRules,
}

/// An operator's rules for storing.
#[derive(Clone, Copy, Debug)]
pub struct StorableRules {
    /// Store responses that set a cookie even if they aren't `public`, if they state a lifetime or the operator sets it.
    pub share_cookies: bool,
    /// Returns `true` if the origin sees another value of this request field than the client sent. A response that
    /// varies by it can't be selected.
    pub overwritten: fn(&HeaderName) -> bool,
}

impl Default for StorableRules {
    fn default() -> Self {
        Self {
            share_cookies: false,
            overwritten: |_| false,
        }
    }
}

/// The reason why a response must not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The method isn't GET.
    Method,
    /// The status is interim, 304, 416 for a range request, or unknown despite `must-understand`.
    Status,
    /// `no-store` in the request or the response.
    NoStore,
    /// `private`.
    Private,
    /// The request has `Authorization`, and the response doesn't permit sharing (§3.5).
    Authorization,
    /// The request has another [credential](super::credential), and the response doesn't permit sharing.
    Credential,
    /// The response sets a cookie and isn't `public` with a stated lifetime.
    Cookie,
    /// `Vary` contains `*`, is malformed, or names an [overwritten](StorableRules::overwritten) field, so no request could match.
    Vary,
    /// Neither the status nor a directive nor `Expires` allows it.
    NotAllowed,
}

impl Refusal {
    /// Returns `true` if the refusal results from client-specific fields of the request. It then has no bearing on
    /// responses stored for other clients.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use ifmatch_cache::policy::storable::Refusal;
    /// assert!(Refusal::Authorization.is_personal(&HeaderMap::new()) && !Refusal::Private.is_personal(&HeaderMap::new()));
    /// ```
    pub fn is_personal(self, request: &HeaderMap) -> bool {
        matches!(self, Self::Authorization | Self::Credential)
            || RequestDirectives::from_headers(request).no_store
    }
}

impl Exchange<'_> {
    /// Returns the reason why the response must not be stored. Returns `None` if it may be.
    pub fn refusal(&self) -> Option<Refusal> {
        let directives = &self.governing.directives;
        let understood = is_understood(self.status);
        if *self.method != Method::GET {
            return Some(Refusal::Method);
        }
        if self.status.is_informational() || self.status == StatusCode::NOT_MODIFIED {
            return Some(Refusal::Status);
        }
        // The range isn't part of the cache key.
        if self.status == StatusCode::RANGE_NOT_SATISFIABLE && self.request.contains_key(RANGE) {
            return Some(Refusal::Status);
        }
        // §5.2.2.3: a cache that knows the status ignores no-store next to must-understand.
        let must_understand = directives.has(Flag::MustUnderstand);
        if must_understand && !understood {
            return Some(Refusal::Status);
        }
        let forbidden = directives.has(Flag::NoStore) && !must_understand;
        if forbidden || RequestDirectives::from_headers(self.request).no_store {
            return Some(Refusal::NoStore);
        }
        if directives.private.is_response() {
            return Some(Refusal::Private);
        }
        if self.request.contains_key(AUTHORIZATION) && !directives.allows_sharing() {
            return Some(Refusal::Authorization);
        }
        if Vary::of(self.response)
            .is_none_or(|vary| vary.names().iter().any(self.rules.overwritten))
        {
            return Some(Refusal::Vary);
        }
        if !self.may_share_cookie() {
            return Some(Refusal::Cookie);
        }
        let allowed = self.is_explicit() || directives.has(Flag::Public);
        if !allowed && !directives.allows_sharing() && self.resource.has_credential(self.request) {
            return Some(Refusal::Credential);
        }
        let is_named = self.resource.ttl.get(self.status).is_some() || self.is_overridden();
        let is_cacheable = is_heuristic_status(self.status) || is_named;
        (!allowed && !is_cacheable).then_some(Refusal::NotAllowed)
    }

    /// Returns `true` if the response sets no cookie, a public one, or the only user's. An excluded `Set-Cookie` does
    /// not count.
    fn may_share_cookie(&self) -> bool {
        let directives = &self.governing.directives;
        if self.governing.audience == Audience::Private {
            return true;
        }
        // An override is the operator's word about the lifetime alone, unless the operator shares cookies, too.
        let public = directives.has(Flag::Public) && self.is_explicit()
            || self.rules.share_cookies && (self.is_explicit() || self.is_overridden());
        let sets = self.response.contains_key(SET_COOKIE)
            && !directives.unstored_fields().any(|name| *name == SET_COOKIE);
        !sets || public
    }

    /// Returns `true` if the operator sets the lifetime.
    fn is_overridden(&self) -> bool {
        self.resource.override_ttl.get(self.status).is_some()
    }

    /// Returns `true` if the origin states a lifetime.
    fn is_explicit(&self) -> bool {
        let directives = &self.governing.directives;
        let expires = !self.governing.targeted && self.response.contains_key(EXPIRES);
        directives.max_age.is_some() || directives.s_maxage.is_some() || expires
    }
}

/// Returns `true` if a response that must not be stored is about the client that sent the request: it refuses the request, sends
/// the client elsewhere, sets a cookie, or is private. It then says nothing about a stored response that is still fresh. 404 and 410
/// are about the resource.
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::storable::{Refusal, is_for_one_client};
/// assert!(is_for_one_client(StatusCode::FORBIDDEN, None));
/// assert!(is_for_one_client(StatusCode::OK, Some(Refusal::Cookie)));
/// assert!(!is_for_one_client(StatusCode::OK, Some(Refusal::NoStore)));
/// ```
pub fn is_for_one_client(status: StatusCode, refusal: Option<Refusal>) -> bool {
    matches!(status.as_u16(), 302 | 303 | 307 | 400..=403 | 405..=409 | 411..=431)
        || matches!(refusal, Some(Refusal::Cookie | Refusal::Private))
}

/// Returns `true` if responses with this status may have a heuristic lifetime (RFC 9110 §15.1).
///
/// ```
/// use http::StatusCode;
/// use ifmatch_cache::policy::storable::is_heuristic_status;
/// assert!(is_heuristic_status(StatusCode::NOT_FOUND));
/// assert!(!is_heuristic_status(StatusCode::FOUND));
/// ```
pub fn is_heuristic_status(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Returns `true` if this cache knows the caching requirements of the status: those in RFC 9110 §15, and 428, 429, 431, 451
/// and 511.
pub fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200..=206 | 300..=305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 451 | 500..=505 | 511)
}
