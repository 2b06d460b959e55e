//! The cache key: the normalized URI of a request, with the host that it is sent to.
//!
//! Equivalent paths have the same key. The request's implicit key distinguishes them.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Uri};
use ifmatch_core::fields;
use url::{Position, Url};

use crate::request::normalize;

/// A URI: scheme, lower-case host without the default port, and [normalized](normalize::normalize) path and query.
#[derive(Clone)]
pub(crate) struct CacheKey {
    text: Box<str>,
    /// Position of the path.
    path: usize,
}

impl CacheKey {
    fn new(origin: &str, path: &str) -> Self {
        Self {
            text: [origin, path].concat().into(),
            path: origin.len(),
        }
    }

    /// Returns the key of a request. Returns `None` if it names no host or several, so the origin may choose either.
    pub(crate) fn of(head: &Parts, fixed_scheme: Option<&str>) -> Option<Self> {
        let scheme = fixed_scheme.or(head.uri.scheme_str()).unwrap_or("http");
        let mut lines = fields::lines(&head.headers, HOST);
        let host = match (lines.next(), lines.next()) {
            (Some(line), None) => Some(line.to_str().ok()?),
            (None, None) => None,
            _ => return None,
        };
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let authority = match (authority, host) {
            (Some(authority), Some(host)) if !same_host(authority, host, scheme) => return None,
            (Some(authority), _) => authority,
            (None, host) => host?,
        };
        let authority = without_port(authority, scheme);
        let kinds_in_host = kinds(authority);
        if authority.is_empty() || kinds_in_host & INVALID != 0 {
            return None;
        }
        let rest = normalize::normalize(normalize::target(&head.uri));
        let mut text = String::with_capacity(scheme.len() + authority.len() + rest.len() + 3);
        text.push_str(scheme);
        text.push_str("://");
        text.push_str(authority);
        if (kinds(scheme) | kinds_in_host) & UPPER != 0 {
            text.make_ascii_lowercase();
        }
        let path = text.len();
        text.push_str(&rest);
        Some(Self {
            text: text.into(),
            path,
        })
    }

    /// Sets the host of a request to the one in the key, so all requests that share a response present the same host
    /// to the origin.
    pub(crate) fn set_host(&self, head: &mut Parts) {
        let host = self.origin().split_once("://").map_or("", |(_, host)| host);
        if head.headers.get(HOST).is_some_and(|line| line != host)
            && let Ok(line) = HeaderValue::from_str(host)
        {
            head.headers.insert(HOST, line);
        }
        if head
            .uri
            .authority()
            .is_some_and(|authority| authority.as_str() != host)
        {
            let mut parts = head.uri.clone().into_parts();
            parts.authority = host.parse().ok();
            if let Ok(uri) = Uri::from_parts(parts) {
                head.uri = uri;
            }
        }
    }

    /// Returns the keys of a URL: with the host as the URL standard normalizes it, and as written.
    pub(crate) fn parse(text: &str) -> Vec<Self> {
        let Ok(url) = Url::parse(text) else {
            return Vec::new();
        };
        let path = normalize::normalize(&url[Position::BeforePath..Position::AfterQuery]);
        let written = text
            .split_once("://")
            .map(|(_, rest)| rest.split(['/', '\\', '?', '#']).next());
        let written = written.flatten().unwrap_or_default().to_ascii_lowercase();
        let written = format!(
            "{}://{}",
            url.scheme(),
            without_port(&written, url.scheme())
        );
        let mut origins = vec![url.origin().ascii_serialization(), written];
        origins.dedup();
        origins
            .iter()
            .map(|origin| Self::new(origin, &path))
            .collect()
    }

    /// Returns the common prefix of the keys of all URIs with this prefix.
    pub(crate) fn prefix(start: &str) -> String {
        let host = start.find("://").map_or(0, |at| at + 3);
        let path = start[host..].find('/').map_or(start.len(), |at| host + at);
        let (origin, path) = start.split_at(path);
        let origin = origin.to_ascii_lowercase();
        let scheme = origin.split_once("://").map_or("", |(scheme, _)| scheme);
        if path.is_empty() {
            // No key has the default port, and this may be the beginning of one.
            let port = default_port(scheme);
            let mut beginnings = (1..=port.len()).rev().map(|end| &port[..end]);
            let host = beginnings.find_map(|beginning| origin.strip_suffix(beginning));
            return host.unwrap_or(&origin).to_owned();
        }
        format!(
            "{}{}",
            without_port(&origin, scheme),
            normalize::normalize_prefix(path)
        )
    }

    /// Returns the key of another path and query on the same host.
    pub(crate) fn sibling(&self, target: &str) -> Self {
        Self::new(self.origin(), &normalize::normalize(target))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the scheme and host.
    pub(crate) fn origin(&self) -> &str {
        &self.text[..self.path]
    }

    /// Returns the normalized path and query.
    pub(crate) fn path(&self) -> &str {
        &self.text[self.path..]
    }
}

impl PartialEq for CacheKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CacheKey {}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for CacheKey {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An upper-case letter.
const UPPER: u8 = 1;
/// A byte that isn't allowed in a host or port.
const INVALID: u8 = 2;

/// Returns the kinds of bytes in a host with an optional port.
fn kinds(text: &str) -> u8 {
    text.bytes()
        .fold(0, |kinds, byte| kinds | KINDS[usize::from(byte)])
}

/// The kind of each byte, or 0 for one that stays as it is.
const KINDS: [u8; 256] = {
    let mut kinds = [INVALID; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_uppercase() {
            kinds[byte as usize] = UPPER;
        } else if byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%')
        {
            kinds[byte as usize] = 0;
        }
        byte += 1;
    }
    kinds
};

fn same_host(authority: &str, host: &str, scheme: &str) -> bool {
    without_port(authority, scheme).eq_ignore_ascii_case(without_port(host, scheme))
}

fn without_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    authority
        .strip_suffix(default_port(scheme))
        .or(authority.strip_suffix(':'))
        .unwrap_or(authority)
}

fn default_port(scheme: &str) -> &'static str {
    if scheme == "https" { ":443" } else { ":80" }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(uri: &str, hosts: &[&str]) -> Option<String> {
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let head = request.body(()).unwrap().into_parts().0;
        CacheKey::of(&head, None).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn equivalent_requests_have_one_key() {
        let expected = Some("http://a.example/x?y".to_owned());
        for (uri, hosts) in [
            ("/x?y", &["A.example:80"][..]),
            ("http://a.EXAMPLE/x?y", &[]),
            ("http://a.example:80/x?y", &["a.example"]),
        ] {
            assert_eq!(key(uri, hosts), expected, "{uri} {hosts:?}");
        }
        assert_eq!(
            key("http://a.example", &[]).as_deref(),
            Some("http://a.example/")
        );
    }

    #[test]
    fn hosts_are_checked_and_in_lower_case() {
        for byte in (33..127_u8).map(char::from) {
            let in_host = byte.is_ascii_alphanumeric() || "-._~:[]%".contains(byte);
            let expected = in_host.then(|| format!("http://a{}b/x", byte.to_ascii_lowercase()));
            assert_eq!(key("/x", &[&format!("a{byte}b")]), expected, "{byte}");
        }
        for (uri, hosts) in [
            ("HTTP://a.example/x", &[][..]),
            ("Http://a.example/x", &["A.EXAMPLE"]),
        ] {
            assert_eq!(
                key(uri, hosts).as_deref(),
                Some("http://a.example/x"),
                "{uri}"
            );
        }
    }

    #[test]
    fn requests_get_the_host_of_the_key() {
        for (uri, host) in [
            ("/x?y", Some("A.Example")),
            ("/x?y", Some("a.example:80")),
            ("/x?y", Some("A.EXAMPLE:")),
            ("http://A.example:80/x?y", None),
            ("http://a.example:/x?y", Some("A.example")),
            ("http://a.example/x?y", Some("a.example")),
        ] {
            let request = host.into_iter().fold(Request::get(uri), |request, host| {
                request.header(HOST, host)
            });
            let mut head = request.body(()).unwrap().into_parts().0;
            CacheKey::of(&head, None).unwrap().set_host(&mut head);
            assert_eq!(head.headers.get(HOST).is_some(), host.is_some());
            assert!(
                head.headers
                    .get(HOST)
                    .is_none_or(|line| line == "a.example"),
                "{uri} {host:?}"
            );
            assert!(
                head.uri
                    .authority()
                    .is_none_or(|authority| authority == "a.example"),
                "{uri} {host:?}"
            );
            assert!(
                head.uri.path_and_query().is_some_and(|path| path == "/x?y"),
                "{uri}"
            );
        }
    }

    #[test]
    fn hosts_are_never_mixed_up() {
        assert_ne!(key("/x", &["a.example"]), key("/x", &["b.example"]));
        assert_ne!(key("/x", &["a.example"]), key("/x", &["a.example:8080"]));
        for (uri, hosts) in [
            ("/x", &[][..]),
            ("/x", &["a.example", "b.example"]),
            ("http://a.example/x", &["b.example"]),
            ("/x", &["user@a.example"]),
            ("/x", &["a.example/b"]),
            ("/x", &[""]),
        ] {
            assert_eq!(key(uri, hosts), None, "{uri} {hosts:?}");
        }
    }

    #[test]
    fn the_origin_is_the_part_before_the_path() {
        let keys = CacheKey::parse("HTTP://A.example:80/x/y#z");
        assert_eq!(
            keys.iter().map(CacheKey::origin).collect::<Vec<_>>(),
            ["http://a.example"]
        );
        assert_eq!(keys[0].path(), "/x/y");
    }

    #[test]
    fn a_host_may_be_written_in_several_ways() {
        for (url, expected) in [
            (
                "http://127.1/x",
                &["http://127.0.0.1/x", "http://127.1/x"][..],
            ),
            (
                "http://[0::1]:8080",
                &["http://[::1]:8080/", "http://[0::1]:8080/"],
            ),
            ("no url", &[]),
        ] {
            assert_eq!(
                CacheKey::parse(url)
                    .iter()
                    .map(CacheKey::as_str)
                    .collect::<Vec<_>>(),
                expected
            );
        }
    }

    #[test]
    fn a_prefix_that_ends_in_the_host_or_port_begins_the_keys_of_its_uris() {
        for (uri, without) in [
            ("http://example.com:80/a", "http://example.com"),
            ("https://example.com:443/a", "https://example.com"),
            ("http://example.com:8080/a", "http://example.com:8080"),
            ("http://example.com:443/a", "http://example.com:443"),
        ] {
            let key = key(uri, &[]).unwrap();
            let host = uri.find("://").unwrap() + 3;
            for end in host..=uri.len() {
                let prefix = CacheKey::prefix(&uri[..end]);
                assert!(key.starts_with(&prefix), "{uri}, {end}: {prefix}");
            }
            let origin = uri.strip_suffix("/a").unwrap();
            assert_eq!(CacheKey::prefix(origin), without);
        }
    }
}
