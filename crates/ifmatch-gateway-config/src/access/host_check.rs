//! Protection against DNS rebinding.
//!
//! A listener without credentials, or with published ones, trusts all programs on its machine, including browsers. If
//! `evil.example` resolves to 127.0.0.1, its pages could send requests to the gateway and read the responses. Such requests name
//! the foreign host.

use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;

/// Returns 421 for a request to a host that may be another machine (RFC 9110 §15.5.20).
pub fn reject<B>(request: &Request<B>) -> Option<Response<Bytes>> {
    if are_local(request.uri(), request.headers()) {
        return None;
    }
    let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host").detail(
        "without a secret token or key, use an IP address or localhost as the host, such as http://127.0.0.1. Or set \
         --write-token-file, and accounts with keys of their own",
    );
    Some(problem.to_response())
}

/// Returns `true` if a request names only hosts of this machine, or of a network that an attacker's name can't lead to.
pub fn is_for_this_machine(head: &Parts) -> bool {
    are_local(&head.uri, &head.headers)
}

/// Returns `true` if all hosts of a request are local, in its target and in each `Host`.
fn are_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let mut hosts = fields::lines(headers, HOST)
        .map(HeaderValue::as_bytes)
        .chain(named);
    hosts.all(is_local)
}

/// Returns `true` for a host that can't be registered: an address, a name without a dot, or a name below `localhost`
/// (RFC 6761 §6.3), with an optional port. Trailing dots mark the name as absolute, and a resolver may ignore any
/// number of them.
fn is_local(host: &[u8]) -> bool {
    if host.starts_with(b"[") {
        return true;
    }
    let name = host.split(|byte| *byte == b':').next().unwrap_or_default();
    let end = name
        .iter()
        .rposition(|byte| *byte != b'.')
        .map_or(0, |last| last + 1);
    let name = &name[..end];
    let mut labels = name.rsplit(|byte| *byte == b'.');
    let last = labels.next().unwrap_or_default();
    // A name that ends in a number is an address, for browsers as well.
    let is_number = !last.is_empty() && last.iter().all(u8::is_ascii_digit);
    labels.next().is_none() || is_number || last.eq_ignore_ascii_case(b"localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrable_names_are_not_local() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:80",
            "localhost",
            "LOCALHOST.:1",
            "a.b.localhost",
            "host",
            "host.",
            "host:1",
            "localhost..",
            "",
        ] {
            assert!(is_local(host.as_bytes()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "evil.example.",
            "evil.example..",
            "evil.example...:80",
            "localhost..evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_local(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn every_host_of_a_request_is_checked() {
        let request =
            |uri: &str, host: &str| Request::get(uri).header(HOST, host).body(()).unwrap();
        assert!(reject(&request("/", "localhost")).is_none());
        assert!(reject(&request("http://localhost/", "localhost")).is_none());
        for (uri, host) in [
            ("/", "a.example"),
            ("http://a.example/", "localhost"),
            ("http://localhost/", "a.example"),
        ] {
            assert_eq!(
                reject(&request(uri, host)).unwrap().status(),
                421,
                "{uri} {host}"
            );
        }
    }
}
