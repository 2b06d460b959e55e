//! Removal of hop-by-hop header fields (RFC 9110 §7.6.1).

use http::header::TE;
use http::{HeaderMap, HeaderValue};
use ifmatch_core::fields::hop_by_hop;

/// Removes hop-by-hop fields, except `TE: trailers`, since trailers are forwarded.
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
    fn hop_by_hop_fields_are_removed() {
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
    fn connection_options_cannot_remove_the_host() {
        let lines = [("connection", "host, content-length"), ("host", "a"), ("content-length", "0")];
        assert_eq!(removed(&lines).len(), 2);
    }
}
