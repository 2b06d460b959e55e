//! Header fields: lookup, and the sets of fields that are removed or kept when a message is forwarded or stored.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

pub mod forwarded;
pub mod hop_by_hop;
pub mod not_modified;
pub mod trailers;

/// Returns `true` if a field is present.
///
/// Compares the names linearly, which is faster than hashing for the few fields of a typical message.
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
    headers.iter().filter(move |(other, _)| **other == name).map(|(_, value)| value)
}

/// Copies header fields for storage. The values share one allocation: those of a received message are slices of a much larger
/// buffer, which they would keep in memory. Leaves room in the index for `added` more names.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::fields;
///
/// let headers = HeaderMap::from_iter([(header::VIA, HeaderValue::from_static("1.1 a"))]);
/// assert_eq!(fields::compact(&headers, 0), headers);
/// ```
pub fn compact(headers: &HeaderMap, added: usize) -> HeaderMap {
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers.values().for_each(|value| text.extend_from_slice(value.as_bytes()));
    let mut text: Bytes = text.freeze();
    let mut copy = HeaderMap::with_capacity(headers.keys_len() + added);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_maybe_shared(text.split_to(value.len())) {
            copy.append(name, value);
        }
    }
    // The second copy drops the spare capacity for fields, which would be most of a small response, but not the index.
    copy.clone()
}
