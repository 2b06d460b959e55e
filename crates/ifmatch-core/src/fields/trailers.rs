//! Fields that must not be forwarded in a trailer section (RFC 9110 §6.5.1).

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, AGE, ALLOW, AUTHORIZATION, CACHE_CONTROL,
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, COOKIE, DATE,
    EXPECT, EXPIRES, HOST, LOCATION, MAX_FORWARDS, ORIGIN, PRAGMA, RANGE, RETRY_AFTER, SET_COOKIE,
    TRAILER, VARY, VIA, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName};

use super::{forwarded, hop_by_hop};

/// Fields that direct, frame or describe a message, or carry authorization. A recipient that merges trailers into the
/// header section would see them only after every intermediary has decided without them.
const NAMES: [HeaderName; 30] = [
    ACCEPT,
    ACCEPT_ENCODING,
    ACCEPT_RANGES,
    AGE,
    ALLOW,
    HeaderName::from_static("authentication-info"),
    AUTHORIZATION,
    CACHE_CONTROL,
    HeaderName::from_static("cdn-cache-control"),
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    DATE,
    EXPECT,
    EXPIRES,
    HOST,
    LOCATION,
    MAX_FORWARDS,
    ORIGIN,
    PRAGMA,
    RANGE,
    RETRY_AFTER,
    SET_COOKIE,
    TRAILER,
    VARY,
    VIA,
    WWW_AUTHENTICATE,
];

/// Removes the fields that aren't allowed in a trailer section: [hop-by-hop](hop_by_hop) fields, those that [describe a
/// client](forwarded), preconditions, and all fields that frame, route, authenticate, modify or describe a message.
/// Keeps checksums, tags and application fields.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_core::fields::trailers;
///
/// let mut fields = HeaderMap::new();
/// for name in ["x-forwarded-for", "content-length", "connection", "if-match", "authorization", "repr-digest", "etag"] {
///     fields.append(name, HeaderValue::from_static("1"));
/// }
/// trailers::clean(&mut fields);
/// assert!(fields.keys().eq(["repr-digest", "etag"]));
/// ```
pub fn clean(trailers: &mut HeaderMap) {
    hop_by_hop::remove(trailers);
    let is_forbidden = |name: &&HeaderName| {
        let is_precondition = name.as_str().starts_with("if-");
        is_precondition || NAMES.contains(*name) || forwarded::describes_client(name)
    };
    for name in trailers
        .keys()
        .filter(is_forbidden)
        .cloned()
        .collect::<Vec<_>>()
    {
        trailers.remove(name);
    }
}
