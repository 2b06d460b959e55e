//! Header fields that end here: they concern one connection, and are neither stored nor passed on (RFC 9110 §7.6.1,
//! RFC 9111 §3.1).

use http::header::{CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

use super::fields::members;

const NAMES: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes them, and those that `Connection` names.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::hop_by_hop;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CONNECTION, HeaderValue::from_static("close, X-Hop"));
/// headers.insert("x-hop", HeaderValue::from_static("1"));
/// hop_by_hop::remove(&mut headers);
/// assert!(headers.is_empty());
/// ```
pub fn remove(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        members(headers.get_all(CONNECTION)).filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    for name in named.iter().chain(&NAMES) {
        headers.remove(name);
    }
}
