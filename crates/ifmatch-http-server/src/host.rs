//! Validation of a request's host: exactly one, consisting of a name or an address and an optional port.

use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Version};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;

/// Returns the problem with a request's host, in the field or in the target (RFC 9112 §3.2, RFC 9113 §8.3.1).
///
/// Forwarding, caching and host checks rely on this: the next hop could interpret user information, a second host or a
/// path in the host differently.
pub(crate) fn check<B>(request: &Request<B>) -> Option<Problem> {
    let mut hosts = fields::lines(request.headers(), HOST).map(HeaderValue::as_bytes);
    let (host, second) = (hosts.next(), hosts.next());
    let authority = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let is_wrong = match (host, authority) {
        _ if second.is_some() => true,
        (None, None) => request.version() > Version::HTTP_10,
        (Some(host), None) => !host.is_empty() && Host::parse(host).is_none(),
        (None, Some(authority)) => Host::parse(authority).is_none(),
        (Some(host), Some(authority)) if request.version() < Version::HTTP_2 => {
            // The target takes precedence (RFC 9112 §3.2.2).
            Host::parse(authority).is_none() || (!host.is_empty() && Host::parse(host).is_none())
        }
        (Some(host), Some(authority)) => !are_same(host, authority, request.uri().scheme()),
    };
    is_wrong.then(|| {
        Problem::bad_request(
            "a request must have exactly one host: a name or an address, and an optional port",
        )
    })
}

/// Replaces a `Host` that differs from the host in the target, which takes precedence (RFC 9112 §3.2.2). Otherwise a cache
/// couldn't tell which resource a request changes.
pub(crate) fn normalize<B>(request: &mut Request<B>) {
    let Some(authority) = request.uri().authority() else {
        return;
    };
    let differs = request
        .headers()
        .get(HOST)
        .is_some_and(|host| host != authority.as_str());
    if let (true, Ok(host)) = (differs, HeaderValue::from_str(authority.as_str())) {
        request.headers_mut().insert(HOST, host);
    }
}

/// Returns `true` if a `Host` and the host in a target are valid, and mean the same.
fn are_same(host: &[u8], authority: &[u8], scheme: Option<&Scheme>) -> bool {
    let (Some(host), Some(authority)) = (Host::parse(host), Host::parse(authority)) else {
        return false;
    };
    host.name.eq_ignore_ascii_case(authority.name) && host.port(scheme) == authority.port(scheme)
}

/// A host without user information.
struct Host<'a> {
    name: &'a [u8],
    port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Parses a name or an address, and an optional port.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let end = match text {
            [b'[', ..] => text.iter().position(|byte| *byte == b']')? + 1,
            _ => text
                .iter()
                .position(|byte| !IN_NAME[usize::from(*byte)])
                .unwrap_or(text.len()),
        };
        let (name, rest) = text.split_at(end);
        let is_name = match name {
            [b'[', address @ .., b']'] => std::str::from_utf8(address)
                .is_ok_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
            _ => !name.is_empty(),
        };
        let port = match rest {
            [] | [b':'] => None,
            [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
                Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
            }
            _ => return None,
        };
        is_name.then_some(Self { name, port })
    }

    /// Returns the port, or else the default one of the scheme.
    fn port(&self, scheme: Option<&Scheme>) -> Option<u16> {
        self.port.or_else(|| match scheme?.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        })
    }
}

/// Letters, digits, dots, hyphens, and the underscores used on some networks.
const IN_NAME: [bool; 256] = {
    let mut in_name = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        in_name[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        byte += 1;
    }
    in_name
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for host in [
            "a",
            "a.b-c.example",
            "a_b",
            "a.",
            "127.0.0.1",
            "a:80",
            "a:",
            "a:0",
            "a:00080",
            "a:65535",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(Host::parse(host.as_bytes()).is_some(), "{host}");
        }
        for host in [
            "",
            ":80",
            "a:b",
            "a:8o",
            "a:80:80",
            "a:65536",
            "a:123456",
            "a:+80",
            "a b",
            "a\tb",
            "u@a",
            "u:p@a",
            "@a",
            "a:x@b",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a<b",
            "a%2fb",
            "a,b",
            "[::1",
            "[]",
            "[::1]a",
            "[::1]:x",
            "[u@::1]",
            "[v1.a]",
            "[fe80::1%25e]",
            "\u{e9}",
            "::1",
        ] {
            assert!(Host::parse(host.as_bytes()).is_none(), "{host}");
        }
    }

    #[test]
    fn a_request_names_a_single_host() {
        let rejected = |version: Version, uri: &str, hosts: &[&str]| {
            let request = Request::get(uri).version(version);
            let request = hosts
                .iter()
                .fold(request, |request, host| request.header(HOST, *host));
            check(&request.body(()).unwrap()).is_some()
        };
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for (uri, hosts) in [
                ("/", &["a"][..]),
                ("/", &["a:80"]),
                ("http://a/", &[]),
                ("http://a/", &["a"]),
                ("http://a/", &["A"]),
                ("http://a/", &["a:80"]),
                ("http://a:/", &["a"]),
                ("https://a:443/", &["a"]),
            ] {
                assert!(!rejected(version, uri, hosts), "{uri} {hosts:?}");
            }
            for (uri, hosts) in [
                ("/", &[][..]),
                ("/", &["a", "a"]),
                ("/", &["u@a"]),
                ("/", &["a/b"]),
                ("http://a/", &["a", "a"]),
                ("http://a/", &["u@a"]),
                ("http://a/", &["a:x"]),
                ("http://u@a/", &[]),
                ("http://u@a/", &["a"]),
                ("http://a:x/", &[]),
            ] {
                assert!(rejected(version, uri, hosts), "{uri} {hosts:?}");
            }
        }
        for (uri, host) in [
            ("http://a/", "b"),
            ("http://a/", "a:81"),
            ("https://a/", "a:80"),
            ("http://a/", ""),
        ] {
            assert!(rejected(Version::HTTP_2, uri, &[host]), "{uri} {host}");
            assert!(!rejected(Version::HTTP_11, uri, &[host]), "{uri} {host}");
        }
        assert!(!rejected(Version::HTTP_10, "/", &[]));
        assert!(rejected(Version::HTTP_10, "/", &["a@b"]));
    }
}
