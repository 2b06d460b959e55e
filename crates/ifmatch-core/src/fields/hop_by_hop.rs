//! Hop-by-hop header fields, which are neither stored nor forwarded (RFC 9110 §7.6.1, RFC 9111 §3.1).

use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VARY,
};
use http::{HeaderMap, HeaderName};

/// Fields that are hop-by-hop even if `Connection` doesn't name them.
pub const NAMES: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that `Connection` can't remove: without them the message would have another meaning, or be stored for other
/// clients.
const ESSENTIAL: [HeaderName; 5] = [
    HOST,
    CONTENT_LENGTH,
    CACHE_CONTROL,
    HeaderName::from_static("cdn-cache-control"),
    VARY,
];

/// Removes all hop-by-hop fields, including those named by `Connection`.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields::hop_by_hop;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CONNECTION, HeaderValue::from_static("close, X-Hop"));
/// headers.insert("x-hop", HeaderValue::from_static("1"));
/// hop_by_hop::remove(&mut headers);
/// assert!(headers.is_empty());
/// ```
pub fn remove(headers: &mut HeaderMap) {
    remove_named(headers);
    for name in &NAMES {
        headers.remove(name);
    }
}

/// Removes the fields that are hop-by-hop only because `Connection` names them.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields::hop_by_hop;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade, Cookie, Host"));
/// for (name, value) in [("upgrade", "websocket"), ("cookie", "a=b"), ("host", "example.com")] {
///     headers.insert(name, HeaderValue::from_static(value));
/// }
/// hop_by_hop::remove_named(&mut headers);
/// assert!(!headers.contains_key("cookie"));
/// assert!(headers.contains_key("upgrade") && headers.contains_key("host"));
/// ```
pub fn remove_named(headers: &mut HeaderMap) {
    if !super::has(headers, &CONNECTION) {
        return;
    }
    for name in options(headers)
        .filter(|name| !ESSENTIAL.contains(name) && !NAMES.contains(name))
        .collect::<Vec<_>>()
    {
        headers.remove(name);
    }
}

/// Returns the options of `Connection` that are valid field names.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields::hop_by_hop::options;
///
/// let headers = HeaderMap::from_iter([(header::CONNECTION, HeaderValue::from_static("close, X-Hop,"))]);
/// assert!(options(&headers).eq(["close", "x-hop"]));
/// ```
pub fn options(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    super::members(headers, &CONNECTION).filter_map(|option| HeaderName::from_bytes(option).ok())
}
