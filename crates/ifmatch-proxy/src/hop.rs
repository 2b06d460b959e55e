//! The header fields that belong to one connection, and must not be passed on (RFC 9110 §7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Fields that `Connection` cannot take away: without them the message would mean something else.
const ESSENTIAL: [HeaderName; 2] = [HOST, CONTENT_LENGTH];

/// Removes what belongs to the connection. `TE: trailers` stays, since trailers are passed on.
pub(crate) fn remove(headers: &mut HeaderMap) {
    for name in options(headers) {
        if !ESSENTIAL.contains(&name) {
            headers.remove(name);
        }
    }
    let trailers = accepts_trailers(headers);
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHENTICATION_INFO,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The options that `Connection` names.
pub(crate) fn options(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &CONNECTION).filter_map(|token| HeaderName::from_bytes(token).ok()).collect()
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
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
