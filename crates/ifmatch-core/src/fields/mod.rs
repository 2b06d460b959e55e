//! Header fields: lookup, and the sets of fields that are removed or kept when a message is forwarded or stored.

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(feature = "protocol")]
mod compact;
pub mod forwarded;
pub mod hop_by_hop;
pub mod not_modified;
pub mod trailers;

#[cfg(feature = "protocol")]
pub use compact::compact;

/// Returns `true` if a field is present.
///
/// Compares the names linearly, which is faster than hashing for the few fields of a typical message.
pub fn has(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|other| other == name)
}

/// Returns the lines of one field in order, found like [`has`].
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields;
///
/// let mut headers = HeaderMap::new();
/// for (name, value) in [(header::VIA, "1.1 a"), (header::HOST, "a.example"), (header::VIA, "1.1 b")] {
///     headers.append(name, HeaderValue::from_static(value));
/// }
/// assert_eq!(fields::lines(&headers, header::VIA).collect::<Vec<_>>(), ["1.1 a", "1.1 b"]);
/// ```
pub fn lines(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &HeaderValue> {
    headers
        .iter()
        .filter(move |(other, _)| **other == name)
        .map(|(_, value)| value)
}

/// Returns the members of a field that is a comma-separated list, including empty ones (RFC 9110 §5.6.1).
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields;
///
/// let headers = HeaderMap::from_iter([(header::TE, HeaderValue::from_static("gzip, trailers"))]);
/// assert!(fields::members(&headers, &header::TE).eq([&b"gzip"[..], b"trailers"]));
/// ```
pub fn members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = lines(headers, name.clone()).map(HeaderValue::as_bytes);
    lines
        .flat_map(|line| line.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}
