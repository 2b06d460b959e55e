//! A request that the cache may answer, as far as it must be read for that.

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::request::Parts;
use http::{HeaderName, Method};
use http_body::Body;
use ifmatch_core::fields::hop_by_hop;

use crate::config::Config;
use crate::key::Key;
use crate::obeyed;
use crate::policy::cache_control::RequestDirectives;
use crate::policy::invalidate::is_unsafe;
use crate::signs::{Sign, Signs};
use crate::spelling;

/// A GET or HEAD.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) head: Parts,
    pub(crate) key: Key,
    pub(crate) directives: RequestDirectives,
    signs: Signs,
    /// What tells it apart from other requests with the same key.
    pub(crate) implicit: Box<str>,
}

/// What to do with a request.
pub(crate) enum Kind {
    /// Answer it from the cache if possible.
    Read(Key, Signs),
    /// Pass it on, and see what it makes invalid.
    Write(Key),
    /// Pass it on: the method is a safe one that is not cached.
    Method,
    /// Pass it on: it is not of a kind that can be answered from a cache.
    Bypass,
}

impl Kind {
    pub(crate) fn of(head: &Parts, body: &impl Body, config: &Config) -> Self {
        if config.bypass.is_some_and(|bypasses| bypasses(&head.headers)) {
            return Self::Bypass;
        }
        let key = || Key::of(head, config.scheme.as_deref());
        if is_unsafe(&head.method) {
            return key().map_or(Self::Bypass, Self::Write);
        }
        let signs = Signs::of(&head.headers);
        if head.method == Method::CONNECT || signs.have(Sign::Upgrade) {
            return Self::Bypass;
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Self::Method;
        }
        if !body.is_end_stream() || signs.have(Sign::ForOrigin) {
            return Self::Bypass;
        }
        key().map_or(Self::Bypass, |key| Self::Read(key, signs))
    }
}

impl Asked {
    pub(crate) fn new(mut head: Parts, key: Key, mut signs: Signs, config: &Config) -> Self {
        if signs.have(Sign::Connection) {
            // What nobody will see behind the next proxy must not select what others get.
            hop_by_hop::remove_named(&mut head.headers);
            signs = Signs::of(&head.headers);
        }
        let directives = if config.obey_requests && signs.have(Sign::Directives) {
            RequestDirectives::from_headers(&head.headers)
        } else {
            RequestDirectives::default()
        };
        Self { implicit: implicit(&head, &key, signs, config), head, key, directives, signs }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    pub(crate) fn is_conditional(&self) -> bool {
        self.signs.have(Sign::Condition)
    }

    pub(crate) fn has_range(&self) -> bool {
        self.signs.have(Sign::Range)
    }

    /// Whether the origin's response may do for others who wait for it, and that of another request for this one.
    pub(crate) fn is_sharable(&self) -> bool {
        let directives = &self.directives;
        let forced = directives.no_cache || directives.no_store || directives.max_age.is_some();
        !(forced || self.signs.have(Sign::Authorization) || self.is_head())
    }

    /// Returns the request's conditions and ranges, normalized. Requests can share an origin response only if these are
    /// equal.
    pub(crate) fn condition(&self) -> Box<[u8]> {
        if !self.is_conditional() && !self.has_range() {
            return Box::default();
        }
        let mut said = Vec::new();
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE, IF_RANGE] {
            for line in self.head.headers.get_all(&name) {
                said.extend_from_slice(name.as_str().as_bytes());
                said.push(b':');
                said.extend_from_slice(line.as_bytes());
                said.push(b'\n');
            }
        }
        said.into()
    }
}

/// What tells requests with the same key apart without a word in `Vary`: requests that differ in it never share a
/// response. The target, if it is not in its normal form; and what is said in fields that many origins obey silently.
fn implicit(head: &Parts, key: &Key, signs: Signs, config: &Config) -> Box<str> {
    let mut said = String::new();
    let target = spelling::of(&head.uri);
    if target != key.path() {
        said.extend([TARGET, target, "\n"]);
    }
    if signs.have(Sign::Obeyed) {
        let counts = |name: &HeaderName| obeyed::is_obeyed(name.as_str()) && !(config.rules.overwritten)(name);
        let mut fields: Vec<_> = head.headers.iter().filter(|(name, _)| counts(name)).collect();
        fields.sort_by_key(|(name, _)| name.as_str());
        for (name, line) in fields {
            obeyed::say(name.as_str(), line, &mut said);
        }
    }
    said.into()
}

/// What the target's line begins with: no field has such a name.
const TARGET: &str = "target ";

/// Whether two such texts are of the same spelling of the target.
pub(crate) fn is_same_target(one: &str, other: &str) -> bool {
    spelled(one) == spelled(other)
}

fn spelled(implicit: &str) -> Option<&str> {
    implicit.strip_prefix(TARGET)?.lines().next()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn what_ends_here_is_no_sign() {
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
        let request = fields.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let (head, body) = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap().into_parts();
        let config = Config::default();
        let Kind::Read(key, signs) = Kind::of(&head, &body, &config) else { panic!("it can be answered from a cache") };
        let asked = Asked::new(head, key, signs, &config);
        assert_eq!(asked.signs, Signs::of(&asked.head.headers));
        assert!(asked.is_sharable() && !asked.is_conditional() && !asked.has_range());
        assert_eq!((asked.directives.no_cache, &*asked.implicit), (false, ""));
    }
}
