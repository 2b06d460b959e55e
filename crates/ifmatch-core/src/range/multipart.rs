//! `multipart/byteranges` bodies (RFC 9110 §14.6).

use bytes::Bytes;
use http::HeaderValue;
use thiserror::Error;

use crate::range::ByteRange;
use crate::text::header_value;

/// The framing of a 206 body with several ranges.
///
/// For each part, send its header, then the bytes of its range. After the last part, send the end.
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
    /// Creates the framing for `ranges` of a representation of `total` bytes with the `Content-Type` `part_type`.
    ///
    /// The boundary must not occur in the content: use at least 128 random bits in hexadecimal.
    ///
    /// # Errors
    ///
    /// Fails if the boundary is empty, longer than 70 characters, or has characters other than letters, digits, `-` and `_`.
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
        Ok(Self {
            boundary: boundary.to_owned(),
            part_type,
            ranges,
            total,
        })
    }

    /// Returns the `Content-Type`.
    pub fn content_type(&self) -> HeaderValue {
        header_value(format!("multipart/byteranges; boundary={}", self.boundary))
    }

    /// Returns the `Content-Length`: the size of the whole body.
    pub fn content_length(&self) -> u64 {
        let part =
            |(header, range): (Bytes, ByteRange)| range.len().saturating_add(length(&header));
        self.parts()
            .map(part)
            .fold(length(&self.end()), u64::saturating_add)
    }

    /// Returns the parts in order: the header to send before the bytes of the range, and the range.
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
        self.ranges
            .iter()
            .enumerate()
            .map(|(at, range)| (self.part_header(at, *range), *range))
    }

    /// Returns the bytes to send after the last range.
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

/// The boundary is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid boundary: use 1 to 70 letters, digits, hyphens and underscores")]
pub struct InvalidBoundary;

fn length(bytes: &Bytes) -> u64 {
    bytes.len() as u64
}
