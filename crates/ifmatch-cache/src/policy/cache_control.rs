//! `Cache-Control` of requests and responses (RFC 9111 §5.2), and `Pragma` (§5.4).

use std::time::Duration;

use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderMap, HeaderName};
use ifmatch_core::fields::has;

use super::fields::{members, seconds, split, unquote};

/// What a response's directives say.
///
/// Names are read in any case, values as tokens or quoted strings. Of a repeated directive the stricter one counts. A
/// number of seconds that is none counts as zero (§4.2.1).
///
/// ```
/// use std::time::Duration;
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::cache_control::{Flag, ResponseDirectives};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, Max-Age=\"60\""));
/// let told = ResponseDirectives::from_headers(&headers);
/// assert!(told.has(Flag::Public));
/// assert_eq!(told.max_age, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age` (§5.2.2.1).
    pub max_age: Option<Duration>,
    /// `s-maxage` (§5.2.2.10): for shared caches, in the place of `max-age`.
    pub s_maxage: Option<Duration>,
    /// `stale-while-revalidate` (RFC 5861 §3): how long after its lifetime it may be used while it is validated.
    pub stale_while_revalidate: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4): how long after its lifetime it may be used if the origin fails.
    pub stale_if_error: Option<Duration>,
    /// `no-cache` (§5.2.2.4).
    pub no_cache: Scope,
    /// `private` (§5.2.2.7).
    pub private: Scope,
    flags: u8,
}

/// A directive without a value.
///
/// ```
/// use ifmatch_cache::policy::cache_control::{Flag, ResponseDirectives};
/// assert!(!ResponseDirectives::default().has(Flag::NoStore));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `no-store` (§5.2.2.5).
    NoStore = 1,
    /// `must-revalidate` (§5.2.2.2).
    MustRevalidate = 2,
    /// `proxy-revalidate` (§5.2.2.8).
    ProxyRevalidate = 4,
    /// `public` (§5.2.2.9).
    Public = 8,
    /// `must-understand` (§5.2.2.3).
    MustUnderstand = 16,
    /// `immutable` (RFC 8246).
    Immutable = 32,
}

/// What a directive applies to: `no-cache` and `private` can be limited to header fields.
///
/// ```
/// use ifmatch_cache::policy::cache_control::Scope;
/// assert_eq!(Scope::default(), Scope::Nothing);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The directive is absent.
    #[default]
    Nothing,
    /// To these header fields, which must then not be stored.
    Fields(Vec<HeaderName>),
    /// To the whole response.
    Response,
}

impl Scope {
    /// Whether it is the whole response.
    pub fn is_response(&self) -> bool {
        *self == Self::Response
    }

    /// The header fields, if it is limited to some.
    ///
    /// ```
    /// # use ifmatch_cache::policy::cache_control::Scope;
    /// assert!(Scope::Response.fields().is_empty());
    /// ```
    pub fn fields(&self) -> &[HeaderName] {
        match self {
            Self::Fields(names) => names,
            Self::Nothing | Self::Response => &[],
        }
    }

    /// A directive and its value. What is no list of names in quotes applies to the whole response.
    pub(crate) fn of(value: Option<&[u8]>) -> Self {
        let names = |list: &[u8]| split(list).map(|name| HeaderName::from_bytes(name).ok()).collect::<Option<Vec<_>>>();
        match value.and_then(names) {
            Some(names) if !names.is_empty() => Self::Fields(names),
            _ => Self::Response,
        }
    }

    pub(crate) fn widen(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Response, _) | (_, Self::Nothing) => {}
            (Self::Fields(names), Self::Fields(more)) => names.extend(more),
            (_, other) => *self = other,
        }
    }
}

impl ResponseDirectives {
    /// Reads all lines of `Cache-Control`.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut told = Self::default();
        for (name, value) in directives(headers) {
            told.hear(&name, value);
        }
        told
    }

    /// Whether a directive without a value is present.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    /// Whether a stale response must not be used without asking the origin: `must-revalidate`, `proxy-revalidate`, and
    /// `s-maxage`, which includes the latter (§5.2.2.10).
    ///
    /// ```
    /// # use ifmatch_cache::policy::cache_control::ResponseDirectives;
    /// assert!(!ResponseDirectives::default().forbids_stale());
    /// ```
    pub fn forbids_stale(&self) -> bool {
        self.has(Flag::MustRevalidate) || self.has(Flag::ProxyRevalidate) || self.s_maxage.is_some()
    }

    /// The header fields that a shared cache must not keep: those that `no-cache` or `private` name. A field that must
    /// not be used without validation is not stored at all.
    pub fn unstored_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.no_cache.fields().iter().chain(self.private.fields())
    }

    /// Adds a directive; the value is still quoted, if it was.
    fn hear(&mut self, name: &[u8], value: Option<&[u8]>) {
        match name {
            b"max-age" => shorten(&mut self.max_age, delta(value)),
            b"s-maxage" => shorten(&mut self.s_maxage, delta(value)),
            b"stale-while-revalidate" => shorten(&mut self.stale_while_revalidate, delta(value)),
            b"stale-if-error" => shorten(&mut self.stale_if_error, delta(value)),
            b"no-cache" => self.no_cache.widen(Scope::of(value.and_then(unquote))),
            b"private" => self.private.widen(Scope::of(value.and_then(unquote))),
            _ => {
                if let Some(flag) = Flag::named(name) {
                    self.set(flag);
                }
            }
        }
    }

    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags |= flag as u8;
    }
}

impl Flag {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"no-store" => Self::NoStore,
            b"must-revalidate" => Self::MustRevalidate,
            b"proxy-revalidate" => Self::ProxyRevalidate,
            b"public" => Self::Public,
            b"must-understand" => Self::MustUnderstand,
            b"immutable" => Self::Immutable,
            _ => return None,
        })
    }
}

/// What a request's directives say (§5.2.1). `Pragma: no-cache` counts where there is no `Cache-Control`.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::cache_control::RequestDirectives;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
/// assert!(RequestDirectives::from_headers(&headers).no_cache);
/// headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-stale"));
/// assert!(!RequestDirectives::from_headers(&headers).no_cache);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`: validate, or ask the origin.
    pub no_cache: bool,
    /// `no-store`: keep nothing of the exchange; and ask the origin, as who says this expects.
    pub no_store: bool,
    /// `only-if-cached`: do not ask the origin; 504 instead.
    pub only_if_cached: bool,
    /// `max-age`: no older response. A number of seconds that is none counts as zero.
    pub max_age: Option<Duration>,
    /// `min-fresh`: fresh for at least so long.
    pub min_fresh: Option<Duration>,
    /// `max-stale`: a stale response will do, this long after its lifetime; without a number however long.
    pub max_stale: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: Option<Duration>,
}

impl RequestDirectives {
    /// Reads all lines of `Cache-Control`, or else `Pragma`.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        if has(headers, &CACHE_CONTROL) {
            let mut told = Self::default();
            for (name, value) in directives(headers) {
                told.hear(&name, value);
            }
            return told;
        }
        let pragma = || members(headers.get_all(PRAGMA)).any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        Self { no_cache: has(headers, &PRAGMA) && pragma(), ..Self::default() }
    }

    fn hear(&mut self, name: &[u8], value: Option<&[u8]>) {
        match name {
            b"no-cache" => self.no_cache = true,
            b"no-store" => self.no_store = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => shorten(&mut self.max_age, delta(value)),
            b"min-fresh" => {
                let wanted = value.and_then(number).unwrap_or(Duration::MAX);
                self.min_fresh = Some(self.min_fresh.unwrap_or_default().max(wanted));
            }
            b"max-stale" if value.is_none() => shorten(&mut self.max_stale, Duration::MAX),
            b"max-stale" => shorten(&mut self.max_stale, delta(value)),
            b"stale-if-error" => shorten(&mut self.stale_if_error, delta(value)),
            _ => {}
        }
    }
}

/// Names in lower case, and values as they are.
fn directives(headers: &HeaderMap) -> impl Iterator<Item = (Vec<u8>, Option<&[u8]>)> {
    members(headers.get_all(CACHE_CONTROL)).map(|member| match member.iter().position(|byte| *byte == b'=') {
        // White space before or after the sign is an error: the value then does not count.
        Some(at) => {
            (member[..at].trim_ascii_end().to_ascii_lowercase(), Some(spoiled(&member[..at], &member[at + 1..])))
        }
        None => (member.to_ascii_lowercase(), None),
    })
}

fn spoiled<'a>(name: &[u8], value: &'a [u8]) -> &'a [u8] {
    if name.ends_with(b" ") || name.ends_with(b"\t") { b"" } else { value }
}

fn number(value: &[u8]) -> Option<Duration> {
    seconds(unquote(value).unwrap_or(value))
}

fn delta(value: Option<&[u8]>) -> Duration {
    value.and_then(number).unwrap_or_default()
}

fn shorten(known: &mut Option<Duration>, told: Duration) {
    *known = Some(known.map_or(told, |before| before.min(told)));
}
