//! `Content-Range` of a 206 with one part (RFC 9110 §14.4).

use http::HeaderMap;
use http::header::CONTENT_RANGE;
use ifmatch_core::range::ByteRange;

/// A byte range and the total length.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::content_range::ContentRange;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::CONTENT_RANGE, HeaderValue::from_static("bytes 5-9/10"));
/// let range = ContentRange::of(&headers).unwrap();
/// assert_eq!((range.bytes.start(), range.bytes.len(), range.total), (5, 5, 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The range.
    pub bytes: ByteRange,
    /// Length of the complete representation.
    pub total: u64,
}

impl ContentRange {
    /// Parses the field. Returns `None` if it is absent, repeated, malformed, in another unit, or without a total.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(CONTENT_RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return None;
        };
        let (unit, rest) = line.to_str().ok()?.split_once(' ')?;
        let (range, total) = rest.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let total = number(total)?;
        let bytes =
            ByteRange::new(number(first)?, number(last)?).filter(|bytes| bytes.end() < total)?;
        unit.eq_ignore_ascii_case("bytes")
            .then_some(Self { bytes, total })
    }
}

fn number(digits: &str) -> Option<u64> {
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}
