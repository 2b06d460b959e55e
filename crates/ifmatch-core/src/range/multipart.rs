//! `multipart/byteranges` (RFC 9110 §14.6): the frame around the ranges of one representation.

use bytes::Bytes;
use http::HeaderValue;
use thiserror::Error;

use crate::range::ByteRange;
use crate::text::header_value;

/// The body of a 206 with several ranges, apart from the ranges' own bytes.
///
/// For each part send its header and then the bytes of its range; after the last one, send the end.
///
/// ```
/// use http::HeaderValue;
/// use ifmatch_core::range::multipart::Multipart;
/// use ifmatch_core::range::ByteRange;
///
/// let content = b"hello world";
/// let ranges = vec![ByteRange::new(0, 0).unwrap(), ByteRange::new(6, 10).unwrap()];
/// let kind = HeaderValue::from_static("text/plain");
/// let multipart = Multipart::new("b0undary", Some(kind), ranges, content.len() as u64)?;
///
/// let mut body = Vec::new();
/// for (header, range) in multipart.parts() {
///     body.extend_from_slice(&header);
///     body.extend_from_slice(&content[range.start() as usize..=range.end() as usize]);
/// }
/// body.extend_from_slice(&multipart.end());
/// assert_eq!(body.len() as u64, multipart.content_length());
/// # Ok::<(), ifmatch_core::range::multipart::InvalidBoundary>(())
/// ```
#[derive(Clone, Debug)]
pub struct Multipart {
    boundary: String,
    part_type: Option<HeaderValue>,
    ranges: Vec<ByteRange>,
    total: u64,
}

impl Multipart {
    /// Frames `ranges` of a representation of `total` bytes, whose own `Content-Type` is `part_type`.
    ///
    /// The boundary must not occur in the content: draw it at random, 128 bits or more in hexadecimal digits.
    ///
    /// # Errors
    ///
    /// The boundary is empty, longer than 70 characters, or has other characters than letters, digits, `-` and `_`.
    ///
    /// ```
    /// # use ifmatch_core::range::multipart::Multipart;
    /// assert!(Multipart::new("a b", None, vec![], 0).is_err());
    /// ```
    pub fn new(
        boundary: &str,
        part_type: Option<HeaderValue>,
        ranges: Vec<ByteRange>,
        total: u64,
    ) -> Result<Self, InvalidBoundary> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=70).contains(&boundary.len()) || !boundary.bytes().all(plain) {
            return Err(InvalidBoundary);
        }
        Ok(Self { boundary: boundary.to_owned(), part_type, ranges, total })
    }

    /// The value of `Content-Type`.
    ///
    /// ```
    /// # use ifmatch_core::range::multipart::Multipart;
    /// let multipart = Multipart::new("x", None, vec![], 0)?;
    /// assert_eq!(multipart.content_type(), "multipart/byteranges; boundary=x");
    /// # Ok::<(), ifmatch_core::range::multipart::InvalidBoundary>(())
    /// ```
    pub fn content_type(&self) -> HeaderValue {
        header_value(format!("multipart/byteranges; boundary={}", self.boundary))
    }

    /// The value of `Content-Length`: the bytes of the whole body.
    ///
    /// ```
    /// # use ifmatch_core::range::multipart::Multipart;
    /// let multipart = Multipart::new("x", None, vec![], 0)?;
    /// assert_eq!(multipart.content_length(), multipart.end().len() as u64);
    /// # Ok::<(), ifmatch_core::range::multipart::InvalidBoundary>(())
    /// ```
    pub fn content_length(&self) -> u64 {
        let part = |(header, range): (Bytes, ByteRange)| range.len().saturating_add(length(&header));
        self.parts().map(part).fold(length(&self.end()), u64::saturating_add)
    }

    /// The parts in order: what to send before the bytes of the range, and the range.
    ///
    /// ```
    /// # use ifmatch_core::range::multipart::Multipart;
    /// # use ifmatch_core::range::ByteRange;
    /// let multipart = Multipart::new("x", None, vec![ByteRange::new(1, 2).unwrap()], 9)?;
    /// let (header, range) = multipart.parts().next().unwrap();
    /// assert_eq!(header, "--x\r\nContent-Range: bytes 1-2/9\r\n\r\n");
    /// assert_eq!(range.len(), 2);
    /// # Ok::<(), ifmatch_core::range::multipart::InvalidBoundary>(())
    /// ```
    pub fn parts(&self) -> impl Iterator<Item = (Bytes, ByteRange)> + '_ {
        self.ranges.iter().enumerate().map(|(at, range)| (self.part_header(at, *range), *range))
    }

    /// What to send after the bytes of the last range.
    ///
    /// ```
    /// # use ifmatch_core::range::multipart::Multipart;
    /// assert_eq!(Multipart::new("x", None, vec![], 0)?.end(), "\r\n--x--\r\n");
    /// # Ok::<(), ifmatch_core::range::multipart::InvalidBoundary>(())
    /// ```
    pub fn end(&self) -> Bytes {
        Bytes::from(format!("\r\n--{}--\r\n", self.boundary))
    }

    fn part_header(&self, at: usize, range: ByteRange) -> Bytes {
        let mut text = Vec::with_capacity(128);
        if at > 0 {
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"--");
        text.extend_from_slice(self.boundary.as_bytes());
        if let Some(part_type) = &self.part_type {
            text.extend_from_slice(b"\r\nContent-Type: ");
            text.extend_from_slice(part_type.as_bytes());
        }
        text.extend_from_slice(b"\r\nContent-Range: ");
        text.extend_from_slice(range.content_range(self.total).as_bytes());
        text.extend_from_slice(b"\r\n\r\n");
        Bytes::from(text)
    }
}

/// The boundary cannot be used.
///
/// ```
/// # use ifmatch_core::range::multipart::{InvalidBoundary, Multipart};
/// assert_eq!(Multipart::new("", None, vec![], 0).unwrap_err(), InvalidBoundary);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a usable boundary: take 1 to 70 letters, digits, hyphens and underscores")]
pub struct InvalidBoundary;

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
