//! `Cache-Control` of requests and responses (RFC 9111 §5.2), and `Pragma` (§5.4).

use std::time::Duration;

use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderMap, HeaderName};
use ifmatch_core::fields::has;

use super::fields::{is_quoted, is_token, is_token_byte, members, seconds, split, unquote};
use super::reuse::StaleUse;

/// Directives of a response.
///
/// Names are case-insensitive, and values may be tokens or quoted strings. For a repeated directive, the stricter value
/// applies. An invalid number of seconds counts as zero (§4.2.1). In a member that isn't a directive (`private;
/// max-age=60`), each restricting word applies, a lifetime counts as zero, and no word grants a permission.
///
/// ```
/// use std::time::Duration;
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::cache_control::{Flag, ResponseDirectives};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, Max-Age=\"60\""));
/// let parsed = ResponseDirectives::from_headers(&headers);
/// assert!(parsed.has(Flag::Public));
/// assert_eq!(parsed.max_age, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age` (§5.2.2.1).
    pub max_age: Option<Duration>,
    /// `s-maxage` (§5.2.2.10): replaces `max-age` for shared caches.
    pub s_maxage: Option<Duration>,
    /// `stale-while-revalidate` (RFC 5861 §3): how long after its lifetime it may be used while it is revalidated.
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

/// The scope of `no-cache` or `private`, which can be limited to header fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The directive is absent.
    #[default]
    Nothing,
    /// These header fields, which must then not be stored.
    Fields(Vec<HeaderName>),
    /// The whole response.
    Response,
}

impl Scope {
    /// Returns `true` for the whole response.
    pub fn is_response(&self) -> bool {
        *self == Self::Response
    }

    /// Returns the header fields that the directive is limited to.
    pub fn fields(&self) -> &[HeaderName] {
        match self {
            Self::Fields(names) => names,
            Self::Nothing | Self::Response => &[],
        }
    }

    /// Parses a directive's value. Anything but a quoted list of names applies to the whole response.
    pub(crate) fn of(value: Option<&[u8]>) -> Self {
        let names = |list: &[u8]| {
            split(list)
                .map(|name| HeaderName::from_bytes(name).ok())
                .collect::<Option<Vec<_>>>()
        };
        match value.and_then(names) {
            Some(names) if !names.is_empty() => Self::Fields(names),
            _ => Self::Response,
        }
    }

    fn widen(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Response, _) | (_, Self::Nothing) => {}
            (Self::Fields(names), Self::Fields(more)) => names.extend(more),
            (_, other) => *self = other,
        }
    }
}

impl ResponseDirectives {
    /// Parses all lines of `Cache-Control`.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut parsed = Self::default();
        for (name, value) in directives(headers) {
            parsed.apply(&name, value);
        }
        parsed
    }

    /// Returns `true` if a directive without a value is present.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    /// Returns `true` if a well-formed directive allows a shared cache to store the response to a request with
    /// credentials (§3.5): `public`, `must-revalidate` or `s-maxage`.
    pub fn allows_sharing(&self) -> bool {
        self.flags & SHARING != 0
    }

    /// Returns the parties that may permit the use of a stale response without validation: none with `must-revalidate` or
    /// `proxy-revalidate`, and only operators with `s-maxage` (§5.2.2.10).
    pub fn stale_use(&self) -> StaleUse {
        if self.has(Flag::MustRevalidate) || self.has(Flag::ProxyRevalidate) {
            StaleUse::Never
        } else if self.s_maxage.is_some() {
            StaleUse::BySetting
        } else {
            StaleUse::Free
        }
    }

    /// Returns the header fields that `no-cache` or `private` names. They aren't stored, not even those that could be used
    /// after validation.
    pub fn unstored_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.no_cache.fields().iter().chain(self.private.fields())
    }

    /// Returns the directives without those that apply only to shared caches.
    pub(crate) fn for_one_user(mut self) -> Self {
        (self.s_maxage, self.private) = (None, Scope::Nothing);
        self.flags &= !(Flag::ProxyRevalidate as u8);
        self.allow_sharing();
        self
    }

    /// Adds a directive with its value, which may still be quoted. A flag that grants a permission has no value.
    fn apply(&mut self, name: &[u8], value: Option<&[u8]>) {
        match name {
            b"max-age" => shorten(&mut self.max_age, delta(value)),
            b"s-maxage" => {
                shorten(&mut self.s_maxage, delta(value));
                if value.and_then(number).is_some() {
                    self.allow_sharing();
                }
            }
            b"stale-while-revalidate" => shorten(&mut self.stale_while_revalidate, delta(value)),
            b"stale-if-error" => shorten(&mut self.stale_if_error, delta(value)),
            b"no-cache" => self.no_cache.widen(Scope::of(value.and_then(unquote))),
            b"private" => self.private.widen(Scope::of(value.and_then(unquote))),
            _ => match Flag::named(name) {
                Some(flag) if value.is_none() => self.set(flag),
                Some(flag) if flag.restricts() => self.flags |= flag as u8,
                Some(_) | None => {}
            },
        }
    }

    /// Adds a well-formed directive without a value.
    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags |= flag as u8;
        if matches!(flag, Flag::Public | Flag::MustRevalidate) {
            self.allow_sharing();
        }
    }

    /// Records a well-formed directive that allows sharing.
    pub(crate) fn allow_sharing(&mut self) {
        self.flags |= SHARING;
    }

    /// Adds the restrictions mentioned in a malformed field.
    pub(crate) fn restrict(&mut self, field: &[u8]) {
        for word in words(field) {
            match &word[..] {
                b"private" => self.private.widen(Scope::Response),
                b"no-cache" => self.no_cache.widen(Scope::Response),
                word => {
                    if let Some(flag) = Flag::named(word).filter(|flag| flag.restricts()) {
                        self.flags |= flag as u8;
                    }
                }
            }
        }
    }
}

/// Bit next to the [flags](Flag), set if a well-formed directive allows sharing.
const SHARING: u8 = 64;

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

    /// Returns `true` if the flag is a restriction, which applies even in a malformed member.
    fn restricts(self) -> bool {
        matches!(
            self,
            Self::NoStore | Self::MustRevalidate | Self::ProxyRevalidate
        )
    }
}

/// Directives of a request (§5.2.1). `Pragma: no-cache` counts if there is no `Cache-Control`.
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
    /// `no-cache`: validate before use.
    pub no_cache: bool,
    /// `no-store`: store nothing. The request also goes to the origin, as clients expect.
    pub no_store: bool,
    /// `only-if-cached`: respond with 504 instead of asking the origin.
    pub only_if_cached: bool,
    /// `max-age`: maximum age of the response. An invalid number of seconds counts as zero.
    pub max_age: Option<Duration>,
    /// `min-fresh`: minimum remaining lifetime.
    pub min_fresh: Option<Duration>,
    /// `max-stale`: a response may be used this long after its lifetime. Unlimited without a number.
    pub max_stale: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: Option<Duration>,
}

impl RequestDirectives {
    /// Parses all lines of `Cache-Control`, or else `Pragma`.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        if has(headers, &CACHE_CONTROL) {
            let mut parsed = Self::default();
            for (name, value) in directives(headers) {
                parsed.apply(&name, value);
            }
            return parsed;
        }
        Self {
            no_cache: pragma_is_no_cache(headers),
            ..Self::default()
        }
    }

    fn apply(&mut self, name: &[u8], value: Option<&[u8]>) {
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
            // A permission that can't be parsed isn't granted.
            b"max-stale" => {
                if let Some(time) = value.and_then(number) {
                    shorten(&mut self.max_stale, time);
                }
            }
            b"stale-if-error" => shorten(&mut self.stale_if_error, delta(value)),
            _ => {}
        }
    }
}

/// Returns `true` if `Pragma` mentions `no-cache`, even in malformed form.
pub(crate) fn pragma_is_no_cache(headers: &HeaderMap) -> bool {
    has(headers, &PRAGMA)
        && headers
            .get_all(PRAGMA)
            .iter()
            .any(|line| words(line.as_bytes()).any(|word| word == b"no-cache"))
}

/// Returns names in lower case with their raw values. Each word of a malformed member becomes a name with an empty
/// value.
fn directives(headers: &HeaderMap) -> impl Iterator<Item = (Vec<u8>, Option<&[u8]>)> {
    members(headers.get_all(CACHE_CONTROL)).flat_map(|member| {
        let sound = directive(member);
        let broken = sound
            .is_none()
            .then(|| words(member).map(|word| (word, Some(&b""[..]))))
            .into_iter()
            .flatten();
        sound.into_iter().chain(broken)
    })
}

/// Parses `token`, or `token=` and a token or a quoted string (RFC 9111 §5.2).
fn directive(member: &[u8]) -> Option<(Vec<u8>, Option<&[u8]>)> {
    let (name, value) = match member.iter().position(|byte| *byte == b'=') {
        Some(at) => (&member[..at], Some(&member[at + 1..])),
        None => (member, None),
    };
    let sound = is_token(name) && value.is_none_or(|value| is_token(value) || is_quoted(value));
    sound.then(|| (name.to_ascii_lowercase(), value))
}

/// Returns the tokens in a text, in lower case.
fn words(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    text.split(|byte| !is_token_byte(*byte))
        .filter(|word| !word.is_empty())
        .map(<[u8]>::to_ascii_lowercase)
}

fn number(value: &[u8]) -> Option<Duration> {
    seconds(unquote(value).unwrap_or(value))
}

fn delta(value: Option<&[u8]>) -> Duration {
    value.and_then(number).unwrap_or_default()
}

fn shorten(known: &mut Option<Duration>, new: Duration) {
    *known = Some(known.map_or(new, |before| before.min(new)));
}
