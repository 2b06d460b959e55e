//! Byte ranges (RFC 9110 §14) and `If-Range` (§13.1.5).

use http::header::{IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};

use crate::date::{HttpDate, Timestamp};
use crate::fields;
use crate::tag::EntityTag;
use crate::text::header_value;

pub mod multipart;

/// Selects the part of a representation to return for a GET: `Range`, unless `If-Range` is false.
///
/// Evaluate the preconditions first: 304 and 412 take precedence over 206 and 416. Only GET has ranges.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_core::EntityTag;
/// use ifmatch_core::date::Timestamp;
/// use ifmatch_core::range::{Limits, Representation, Selection, select};
///
/// let tag = EntityTag::strong("new")?;
/// let sent = Representation { tag: Some(&tag), last_modified: None, len: 10_000 };
/// let mut headers = HeaderMap::new();
/// headers.insert(header::RANGE, HeaderValue::from_static("bytes=500-"));
/// headers.insert(header::IF_RANGE, HeaderValue::from_static("\"old\""));
/// let now = Timestamp::from_micros(0);
/// assert_eq!(select(&headers, &sent, now, Limits::default()), Selection::Whole);
/// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
/// ```
pub fn select(
    headers: &HeaderMap,
    sent: &Representation<'_>,
    now: Timestamp,
    limits: Limits,
) -> Selection {
    match if_range(headers, sent, now) {
        Some(false) => Selection::Whole,
        Some(true) | None => requested(headers, sent.len, limits),
    }
}

/// The representation to be sent. It has a single tag, because ranges of different content codings must not be combined.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// Its tag, if it has one.
    pub tag: Option<&'a EntityTag>,
    /// Its modification date, if known.
    pub last_modified: Option<HttpDate>,
    /// Its length in bytes.
    pub len: u64,
}

/// Evaluates `If-Range`. Returns `None` if the field is absent, and `false` if the whole representation must be sent.
///
/// Tags are compared strongly. A date must equal the modification date and be strong: its second must have ended.
/// Anything else is false, including repeated fields.
///
/// ```
/// # use http::{header, HeaderMap, HeaderValue};
/// # use ifmatch_core::EntityTag;
/// # use ifmatch_core::date::Timestamp;
/// # use ifmatch_core::range::{Representation, if_range};
/// let tag = EntityTag::weak("v1")?;
/// let sent = Representation { tag: Some(&tag), last_modified: None, len: 1 };
/// let mut headers = HeaderMap::new();
/// assert_eq!(if_range(&headers, &sent, Timestamp::default()), None);
/// headers.insert(header::IF_RANGE, tag.to_header());
/// assert_eq!(if_range(&headers, &sent, Timestamp::default()), Some(false));
/// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
/// ```
pub fn if_range(headers: &HeaderMap, sent: &Representation<'_>, now: Timestamp) -> Option<bool> {
    let mut lines = fields::lines(headers, IF_RANGE);
    let line = lines.next()?;
    if lines.next().is_some() {
        return Some(false);
    }
    if let Ok(tag) = EntityTag::from_header(line) {
        return Some(sent.tag.is_some_and(|current| current.strong_eq(&tag)));
    }
    let date = HttpDate::parse(line.as_bytes()).filter(|date| date.has_ended(now));
    Some(date.is_some() && date == sent.last_modified)
}

/// Reads `Range` for a representation of `len` bytes, ignoring `If-Range`.
///
/// ```
/// # use http::{header, HeaderMap, HeaderValue};
/// # use ifmatch_core::range::{Limits, Selection, requested};
/// let mut headers = HeaderMap::new();
/// assert_eq!(requested(&headers, 10, Limits::default()), Selection::Whole);
/// headers.insert(header::RANGE, HeaderValue::from_static("bytes=10-"));
/// assert_eq!(requested(&headers, 10, Limits::default()), Selection::Unsatisfiable);
/// ```
pub fn requested(headers: &HeaderMap, len: u64, limits: Limits) -> Selection {
    field(headers).map_or(Selection::Whole, |line| {
        Selection::parse(line.as_bytes(), len, limits)
    })
}

/// Returns the `Range` field. A repeated field is ignored.
///
/// ```
/// # use http::{header, HeaderMap, HeaderValue};
/// # use ifmatch_core::range::field;
/// let mut headers = HeaderMap::new();
/// assert_eq!(field(&headers), None);
/// headers.append(header::RANGE, HeaderValue::from_static("bytes=0-1"));
/// assert!(field(&headers).is_some());
/// headers.append(header::RANGE, HeaderValue::from_static("bytes=2-3"));
/// assert_eq!(field(&headers), None);
/// ```
pub fn field(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = fields::lines(headers, RANGE);
    lines.next().filter(|_| lines.next().is_none())
}

/// Limits on the work of one request.
///
/// ```
/// # use ifmatch_core::range::{Limits, Selection};
/// let limits = Limits { max_ranges: 1 };
/// assert_eq!(Selection::parse(b"bytes=0-0,5-5", 10, limits), Selection::Whole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of ranges in a request. With more, the field is ignored.
    pub max_ranges: usize,
}

/// 100 ranges: enough for viewers that fetch parts of a document, and a small overhead of part headers.
impl Default for Limits {
    fn default() -> Self {
        Self { max_ranges: 100 }
    }
}

/// The response to a `Range` field.
///
/// ```
/// # use ifmatch_core::range::{ByteRange, Limits, Selection};
/// let last_five = Selection::parse(b"bytes=-5", 10, Limits::default());
/// assert_eq!(last_five, Selection::Parts(vec![ByteRange::new(5, 9).unwrap()]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Respond with 200 and the whole representation: no range was requested, or the field is ignored.
    Whole,
    /// Respond with 206 and these ranges, at least one, in the order of the request. They don't overlap.
    Parts(Vec<ByteRange>),
    /// Respond with 416 and [`unsatisfied_content_range`].
    Unsatisfiable,
}

impl Selection {
    /// Reads the value of a `Range` field, for a representation of `len` bytes.
    ///
    /// The field is ignored ([`Whole`](Self::Whole)) if it is malformed, not in bytes, exceeds the limit of ranges, or has
    /// overlapping ranges, so no response contains a byte twice. Ranges that begin after the end are dropped; if none
    /// remain, the result is [`Unsatisfiable`](Self::Unsatisfiable). Numbers beyond 64 bits saturate.
    ///
    /// ```
    /// # use ifmatch_core::range::{Limits, Selection};
    /// let parse = |value| Selection::parse(value, 1_000, Limits::default());
    /// assert!(matches!(parse(b"bytes=0-9, 20-29, -1"), Selection::Parts(parts) if parts.len() == 3));
    /// assert_eq!(parse(b"bytes=0-,0-,0-"), Selection::Whole);
    /// assert_eq!(parse(b"bytes=9-0"), Selection::Whole);
    /// ```
    pub fn parse(value: &[u8], len: u64, limits: Limits) -> Self {
        let Some(specs) = RangeSpec::parse_set(value, limits) else {
            return Self::Whole;
        };
        if len == 0
            && specs
                .iter()
                .any(|spec| matches!(spec, RangeSpec::Suffix(1..)))
        {
            // Satisfiable, but a 206 can't express an empty range.
            return Self::Whole;
        }
        let parts: Vec<_> = specs.iter().filter_map(|spec| spec.resolve(len)).collect();
        match parts.as_slice() {
            [] => Self::Unsatisfiable,
            parts if overlap(parts) => Self::Whole,
            _ => Self::Parts(parts),
        }
    }
}

/// A range of bytes, inclusive of both ends. It has at least one byte.
///
/// ```
/// use ifmatch_core::range::ByteRange;
///
/// let range = ByteRange::new(0, 499).unwrap();
/// assert_eq!(range.len(), 500);
/// assert_eq!(range.content_range(1_234), "bytes 0-499/1234");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

#[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
impl ByteRange {
    /// Creates the range from `start` to `end`, both inclusive. Returns `None` if `end` is less than `start`, or `u64::MAX`,
    /// because the length would overflow.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end && end < u64::MAX {
            Some(Self { start, end })
        } else {
            None
        }
    }

    /// Returns the position of the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the position of the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the number of bytes, at least one.
    pub const fn len(self) -> u64 {
        self.end - self.start + 1
    }

    /// Returns the `Content-Range` of a 206, for a representation of `total` bytes.
    pub fn content_range(self, total: u64) -> HeaderValue {
        header_value(format!("bytes {}-{}/{total}", self.start, self.end))
    }
}

/// Returns the `Content-Range` of a 416.
pub fn unsatisfied_content_range(total: u64) -> HeaderValue {
    header_value(format!("bytes */{total}"))
}

/// A range as requested, which the length of the representation turns into a [`ByteRange`] (RFC 9110 §14.1.1).
///
/// ```
/// use ifmatch_core::range::{ByteRange, Limits, RangeSpec};
///
/// let specs = RangeSpec::parse_set(b"bytes=5-9, -1", Limits::default()).unwrap();
/// assert_eq!(specs, [RangeSpec::From(5, 9), RangeSpec::Suffix(1)]);
/// assert_eq!(specs[0].resolve(8), ByteRange::new(5, 7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `first-last`: two positions, both inclusive. In `first-`, the last one is `u64::MAX`.
    From(u64, u64),
    /// `-length`: the last bytes.
    Suffix(u64),
}

impl RangeSpec {
    /// Parses the value of a `Range` field. Returns `None` if the field is ignored: see [`Selection::parse`].
    ///
    /// ```
    /// # use ifmatch_core::range::{Limits, RangeSpec};
    /// assert_eq!(RangeSpec::parse_set(b"bytes=9-0", Limits::default()), None);
    /// ```
    pub fn parse_set(value: &[u8], limits: Limits) -> Option<Vec<Self>> {
        let equals = value.iter().position(|byte| *byte == b'=')?;
        if !value[..equals].eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let set = value[equals + 1..]
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii);
        let mut members = set.filter(|spec| !spec.is_empty());
        let specs: Vec<_> = members
            .by_ref()
            .take(limits.max_ranges)
            .map(Self::parse)
            .collect::<Option<_>>()?;
        (!specs.is_empty() && members.next().is_none()).then_some(specs)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|byte| *byte == b'-')?;
        match (&text[..dash], &text[dash + 1..]) {
            ([], suffix) => Some(Self::Suffix(number(suffix)?)),
            (first, []) => Some(Self::From(number(first)?, u64::MAX)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, last))
            }
        }
    }

    /// Returns the bytes of a representation of `len` bytes, or `None` if the range is unsatisfiable.
    ///
    /// ```
    /// # use ifmatch_core::range::RangeSpec;
    /// assert_eq!(RangeSpec::From(8, 9).resolve(8), None);
    /// ```
    pub fn resolve(self, len: u64) -> Option<ByteRange> {
        let last = len.checked_sub(1)?;
        match self {
            Self::From(first, end) => ByteRange::new(first, end.min(last)),
            Self::Suffix(0) => None,
            Self::Suffix(length) => ByteRange::new(len.saturating_sub(length), last),
        }
    }
}

/// Parses decimal digits. Saturates.
fn number(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(*byte - b'0'));
    let add = |sum: u64, digit| Some(sum.saturating_mul(10).saturating_add(digit?));
    digits
        .iter()
        .map(digit)
        .try_fold(0, add)
        .filter(|_| !digits.is_empty())
}

fn overlap(parts: &[ByteRange]) -> bool {
    let mut sorted = parts.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[1].start <= pair[0].end)
}
