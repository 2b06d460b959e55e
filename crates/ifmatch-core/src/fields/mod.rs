//! Which header fields are there, and which go where: those of one connection, and those that a 304 keeps.

use http::{HeaderMap, HeaderName, HeaderValue};

pub mod forwarded;
pub mod hop_by_hop;
pub mod not_modified;
pub mod trailers;

/// Whether there is such a field.
///
/// The names are compared one after the other: with as few fields as heads have, that is quicker than hashing a name.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields;
///
/// let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("a.example"))]);
/// assert!(fields::has(&headers, &header::HOST));
/// assert!(!fields::has(&headers, &header::RANGE));
/// ```
pub fn has(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|other| other == name)
}

/// The lines of one field, in their order; found as by [`has`].
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
    headers.iter().filter(move |(other, _)| **other == name).map(|(_, value)| value)
}
