//! Heads of HTTP/1 that the library lets through and RFC 9112 does not.

use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use ifmatch_core::fields::{self, hop_by_hop};
use ifmatch_core::problem::Problem;

/// The answer to a request whose framing or host cannot be relied on. The connection ends with it.
pub(crate) fn refuse<B>(request: &Request<B>) -> Option<Response<Bytes>> {
    if request.version() >= Version::HTTP_2 {
        return None;
    }
    let mut response = coding(request.headers()).or_else(|| host(request))?.to_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// Other codings than one `chunked` would be stored as if they were the content (RFC 9112 §6.1).
fn coding(headers: &HeaderMap) -> Option<Problem> {
    if !fields::has(headers, &TRANSFER_ENCODING) {
        return None;
    }
    let codings: Vec<&[u8]> = hop_by_hop::tokens(headers, &TRANSFER_ENCODING).collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if codings.iter().filter(|coding| is_chunked(coding)).count() > 1 {
        return Some(Problem::bad_request("Transfer-Encoding names chunked more than once"));
    }
    let unknown = codings.iter().any(|coding| !is_chunked(coding));
    unknown.then(|| {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "unknown-transfer-coding").detail(
            "no transfer coding but chunked is understood here: send the content as it is, or with Content-Encoding",
        )
    })
}

/// A request of HTTP/1.1 has exactly one `Host` (RFC 9112 §3.2).
fn host<B>(request: &Request<B>) -> Option<Problem> {
    let mut hosts = fields::lines(request.headers(), HOST);
    let wrong = match (hosts.next(), hosts.next()) {
        (None, _) => request.version() == Version::HTTP_11,
        (Some(_), Some(_)) => true,
        (Some(host), None) => !is_plain(host.as_bytes()) && !is_host(host.as_bytes()),
    };
    let wrong = wrong || request.uri().authority().is_some_and(|named| !is_host(named.as_str().as_bytes()));
    wrong.then(|| Problem::bad_request("a request has exactly one Host, with a name and perhaps a port"))
}

/// Whether this is a host, perhaps with a port, and nothing about a user.
fn is_host(text: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(text) else { return false };
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    rest.strip_prefix(':').map_or(rest.is_empty(), |port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether this is a name or an IPv4 address, perhaps with a port, as nearly always: then nothing needs to be parsed.
fn is_plain(host: &[u8]) -> bool {
    let end = host.iter().position(|byte| !IN_NAME[usize::from(*byte)]).unwrap_or(host.len());
    match host.split_at(end) {
        (_, []) => true,
        ([], _) => false,
        (_, [b':', port @ ..]) => (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Letters, digits, dots and hyphens.
const IN_NAME: [bool; 256] = {
    let mut in_name = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        in_name[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        byte += 1;
    }
    in_name
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_host_is_a_host() {
        for host in ["a", "a.b-c.example", "127.0.0.1", "localhost:10000", "-", "..", "a:0", "a:65535", "a:99999"] {
            assert!(is_plain(host.as_bytes()), "{host}");
            assert!(Authority::try_from(host.as_bytes()).is_ok(), "{host}");
        }
        for host in [":80", "a:", "a:b", "a:80:80", "a b", "[::1]", "u@a", "a:123456", "a/b", "\u{e9}"] {
            assert!(!is_plain(host.as_bytes()), "{host}");
        }
        assert!(is_plain(b""));
    }

    #[test]
    fn a_host_has_no_user_and_its_port_is_a_number() {
        for host in ["a", "a:", "a:80", "[::1]", "[::1]:80", "a_b.example"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["u@a", "u:p@a", "@a", "a:b", "a:8o", "[::1]:x", "a/b", "a b"] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
