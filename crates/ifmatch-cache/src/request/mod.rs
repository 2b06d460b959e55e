//! Reading a request: its handling, its cache key, and its conditions and directives.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use http_body::Body;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::fields::hop_by_hop;

use crate::config::CacheConfig;
use crate::policy::Audience;
use crate::policy::cache_control::RequestDirectives;
use crate::policy::invalidate::is_unsafe;
use crate::policy::resource_rules::ResourceRules;
use crate::request::flags::{RequestFlag, RequestFlags};
use crate::request::key::CacheKey;

pub(crate) mod accept_encoding;
pub(crate) mod flags;
pub(crate) mod key;
pub(crate) mod normalize;
mod unkeyed_inputs;

/// A request's handling.
pub(crate) enum RequestHandling {
    /// Answer from the cache if possible.
    Read(CacheKey, RequestFlags),
    /// Forward, and invalidate.
    Write(CacheKey),
    /// Forward: the method is safe but not cached.
    Method,
    /// Forward: a cache can't answer it.
    Bypass,
    /// Reject: a cache can't answer it, but the client rules out asking the origin (RFC 9111 §5.2.1.7).
    OnlyIfCached,
}

impl RequestHandling {
    pub(crate) fn of(head: &Parts, body: &impl Body, config: &CacheConfig) -> Self {
        if config
            .bypass
            .is_some_and(|bypasses| bypasses(&head.uri, &head.headers))
        {
            return Self::Bypass;
        }
        let key = || CacheKey::of(head, config.scheme.as_deref());
        if is_unsafe(&head.method) {
            return key().map_or(Self::Bypass, Self::Write);
        }
        let flags = RequestFlags::of(&head.headers);
        if head.method == Method::CONNECT || flags.has(RequestFlag::Upgrade) {
            return Self::Bypass;
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Self::Method;
        }
        let is_off = ResourceRules::of(&head.extensions).is_off;
        if !body.is_end_stream() || flags.has(RequestFlag::OriginOnly) || is_off {
            let directives = config
                .obey_requests
                .then(|| RequestDirectives::from_headers(&head.headers));
            let only_if_cached = directives.is_some_and(|directives| directives.only_if_cached);
            return if only_if_cached {
                Self::OnlyIfCached
            } else {
                Self::Bypass
            };
        }
        key().map_or(Self::Bypass, |key| Self::Read(key, flags))
    }
}

/// A GET or HEAD request.
#[derive(Debug)]
pub(crate) struct CacheRequest {
    pub(crate) head: Parts,
    pub(crate) key: CacheKey,
    pub(crate) directives: RequestDirectives,
    /// Address of the client, if known.
    pub(crate) client: Option<IpAddr>,
    flags: RequestFlags,
    /// Distinguishes requests with the same key that must not share a response, regardless of `Vary`: the target if it is
    /// not in normal form, and fields that many origins use without naming them in `Vary`.
    pub(crate) implicit_key: Box<str>,
}

impl CacheRequest {
    pub(crate) fn new(
        mut head: Parts,
        key: CacheKey,
        mut flags: RequestFlags,
        config: &CacheConfig,
    ) -> Self {
        if flags.has(RequestFlag::Connection) {
            // Fields that end at this hop must not select responses that others get.
            hop_by_hop::remove_named(&mut head.headers);
            flags = RequestFlags::of(&head.headers);
        }
        let directives = if config.obey_requests && flags.has(RequestFlag::Directives) {
            RequestDirectives::from_headers(&head.headers)
        } else {
            RequestDirectives::default()
        };
        Self {
            implicit_key: implicit_key(&head, &key, flags, config),
            head,
            key,
            directives,
            client: None,
            flags,
        }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    pub(crate) fn is_conditional(&self) -> bool {
        self.flags.has(RequestFlag::Condition)
    }

    pub(crate) fn has_range(&self) -> bool {
        self.flags.has(RequestFlag::Range)
    }

    /// Returns `true` if this request may share the origin's response with others, in either direction.
    pub(crate) fn is_sharable(&self) -> bool {
        let directives = &self.directives;
        let forced = directives.no_cache || directives.no_store || directives.max_age.is_some();
        !(forced || self.flags.has(RequestFlag::Authorization) || self.is_head())
    }

    /// Returns the lines of the request's conditions and ranges, in a fixed order. Requests can share an origin response only if
    /// these are equal.
    pub(crate) fn condition(&self) -> Box<[u8]> {
        if !self.is_conditional() && !self.has_range() {
            return Box::default();
        }
        let mut text = Vec::new();
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_RANGE] {
            for line in self.head.headers.get_all(&name) {
                text.extend_from_slice(name.as_str().as_bytes());
                text.push(b':');
                text.extend_from_slice(line.as_bytes());
                text.push(b'\n');
            }
        }
        text.into()
    }
}

fn implicit_key(
    head: &Parts,
    key: &CacheKey,
    flags: RequestFlags,
    config: &CacheConfig,
) -> Box<str> {
    let mut text = String::new();
    let target = normalize::target(&head.uri);
    if target != key.path() {
        text.extend([TARGET, target, "\n"]);
    }
    if config.audience == Audience::Private {
        append_user(head, &mut text);
    }
    if flags.has(RequestFlag::UnkeyedInput) {
        let counts = |name: &HeaderName| {
            unkeyed_inputs::is_unkeyed_input(name.as_str()) && !(config.rules.overwritten)(name)
        };
        let mut fields: Vec<_> = head
            .headers
            .iter()
            .filter(|(name, _)| counts(name))
            .collect();
        fields.sort_by_key(|(name, _)| name.as_str());
        for (name, line) in fields {
            unkeyed_inputs::write(name.as_str(), line, &mut text);
        }
    }
    text.into()
}

/// Appends the line of the user, who may change with `Authorization`. No request to a shared cache has one, so a
/// shared cache on the same folder never finds the response.
fn append_user(head: &Parts, text: &mut String) {
    let lines = head
        .headers
        .get_all(AUTHORIZATION)
        .iter()
        .map(HeaderValue::as_bytes);
    let hash = ContentHash::of(&lines.collect::<Vec<_>>().join(&b'\n'));
    text.extend([USER, &hash.hex(), "\n"]);
}

/// Prefixes of the lines of the target and the user. No field has such a name.
const TARGET: &str = "target ";
const USER: &str = "user ";

/// Returns `true` if two implicit keys have the same target.
pub(crate) fn is_same_target(one: &str, other: &str) -> bool {
    target_of(one) == target_of(other)
}

fn target_of(implicit_key: &str) -> Option<&str> {
    implicit_key.strip_prefix(TARGET)?.lines().next()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn hop_by_hop_fields_set_no_flags() {
        let named = "range, if-none-match, authorization, x-forwarded-host, pragma";
        let fields = [
            ("connection", named),
            ("range", "bytes=0-1"),
            ("if-none-match", "*"),
            ("authorization", "Basic eDp5"),
            ("x-forwarded-host", "evil"),
            ("pragma", "no-cache"),
        ];
        let request = Request::get("http://a.example/");
        let request = fields.into_iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let (head, body) = request
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap()
            .into_parts();
        let config = CacheConfig::default();
        let RequestHandling::Read(key, flags) = RequestHandling::of(&head, &body, &config) else {
            panic!("not cacheable")
        };
        let cacheable = CacheRequest::new(head, key, flags, &config);
        assert_eq!(cacheable.flags, RequestFlags::of(&cacheable.head.headers));
        assert!(cacheable.is_sharable() && !cacheable.is_conditional() && !cacheable.has_range());
        assert_eq!(
            (cacheable.directives.no_cache, &*cacheable.implicit_key),
            (false, "")
        );
    }
}
