//! The header fields that belong to one connection, and must not be passed on (RFC 9110 §7.6.1).

use http::header::TE;
use http::{HeaderMap, HeaderValue};
use ifmatch_core::fields::hop_by_hop;

/// Removes what belongs to the connection. `TE: trailers` stays, since trailers are passed on.
pub(crate) fn remove(headers: &mut HeaderMap) {
    let trailers = hop_by_hop::tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    hop_by_hop::remove(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        remove(&mut headers);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect()
    }

    #[test]
    fn fields_of_the_connection_stay_there() {
        let lines = [
            ("connection", "close, X-Private"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic eDp5"),
            ("x-public", "2"),
        ];
        assert_eq!(removed(&lines), ["x-public: 2", "te: trailers"]);
    }

    #[test]
    fn nobody_can_take_the_host_away() {
        let lines = [("connection", "host, content-length"), ("host", "a"), ("content-length", "0")];
        assert_eq!(removed(&lines).len(), 2);
    }
}
