//! Header fields in which proxies report a request's client and original target.

use http::HeaderName;

/// Returns `true` if proxies use the field to describe the client or its request: `Forwarded` (RFC 7239),
/// `X-Forwarded-…` and `X-Real-IP`.
///
/// Servers with a CGI-like interface replace every character of a name other than letters and digits with an
/// underscore. Such spellings of a name count as the same field.
///
/// ```
/// use http::HeaderName;
/// use ifmatch_core::fields::forwarded::describes_client;
///
/// for name in ["forwarded", "x-forwarded-for", "x_forwarded_for", "x.forwarded.host", "x-real-ip"] {
///     assert!(describes_client(&HeaderName::from_static(name)), "{name}");
/// }
/// for name in ["host", "via", "x-request-id", "xforwarded"] {
///     assert!(!describes_client(&HeaderName::from_static(name)), "{name}");
/// }
/// ```
pub fn describes_client(name: &HeaderName) -> bool {
    const EXACT: [&str; 2] = ["forwarded", "x-real-ip"];
    const PREFIX: &str = "x-forwarded";
    let name = name.as_str().as_bytes();
    EXACT
        .iter()
        .any(|exact| name.len() == exact.len() && begins_with(name, exact))
        || begins_with(name, PREFIX)
}

/// Header names are lower case.
fn begins_with(name: &[u8], prefix: &str) -> bool {
    let same = |(byte, expected): (&u8, u8)| {
        *byte == expected || (expected == b'-' && !byte.is_ascii_alphanumeric())
    };
    name.len() >= prefix.len() && name.iter().zip(prefix.bytes()).all(same)
}
