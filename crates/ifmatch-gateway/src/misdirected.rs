//! Requests to this machine under a name that somebody else may own: DNS rebinding.
//!
//! A listener without credentials trusts everybody on its machine, and so the browser there. A page of `evil.example` that has
//! this name resolved to 127.0.0.1 could send it anything, and read what comes back. Its requests say the name.

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;

/// The answer to a request for a host that need not be this machine (RFC 9110 §15.5.20).
pub(crate) fn refuse<B>(request: &Request<B>) -> Option<Response<Bytes>> {
    let named = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let mut hosts = fields::lines(request.headers(), HOST).map(http::HeaderValue::as_bytes).chain(named);
    if hosts.all(is_local) {
        return None;
    }
    let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "unknown-host").detail(
        "without tokens only requests to an address or to localhost are taken: use http://127.0.0.1, or set --write-token-file",
    );
    Some(problem.to_response())
}

/// Whether this host, perhaps with a port, is one that nobody can register: an address, a name without a dot, or one below
/// Returns `true` for `localhost` (RFC 6761 §6.3). Trailing dots mark the name as absolute, and a resolver may ignore
/// any number of them.
fn is_local(host: &[u8]) -> bool {
    if host.starts_with(b"[") {
        return true;
    }
    let name = host.split(|byte| *byte == b':').next().unwrap_or_default();
    let end = name.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
    let name = &name[..end];
    let mut labels = name.rsplit(|byte| *byte == b'.');
    let last = labels.next().unwrap_or_default();
    // Whatever ends in a number is an address, to browsers as well.
    let is_number = !last.is_empty() && last.iter().all(u8::is_ascii_digit);
    labels.next().is_none() || is_number || last.eq_ignore_ascii_case(b"localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_can_be_registered_are_not_local() {
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
    fn all_that_a_request_says_of_its_host_counts() {
        let request = |uri: &str, host: &str| Request::get(uri).header(HOST, host).body(()).unwrap();
        assert!(refuse(&request("/", "localhost")).is_none());
        assert!(refuse(&request("http://localhost/", "localhost")).is_none());
        for (uri, host) in [("/", "a.example"), ("http://a.example/", "localhost"), ("http://localhost/", "a.example")]
        {
            assert_eq!(refuse(&request(uri, host)).unwrap().status(), 421, "{uri} {host}");
        }
    }
}
