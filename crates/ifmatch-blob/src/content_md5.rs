//! MD5 digests of blob content.

use std::fmt;

use ::md5::{Digest, Md5};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use thiserror::Error;

/// MD5 digest of a blob's bytes, as in `Content-MD5`. It detects accidental damage, not tampering.
///
/// ```
/// use ifmatch_blob::headers::ContentMd5;
///
/// let md5 = ContentMd5::of(b"hello");
/// assert_eq!(md5.to_string(), "XUFAKrxLKna5cZ2REBfFkg==");
/// assert_eq!(md5.to_string().parse(), Ok(md5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentMd5([u8; 16]);

impl ContentMd5 {
    /// Computes the MD5 of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }

    /// Creates a digest from its raw bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the value for a header field, in base64.
    pub fn to_header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Formats the digest as base64.
impl fmt::Display for ContentMd5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

/// Parses base64.
impl std::str::FromStr for ContentMd5 {
    type Err = InvalidMd5;

    fn from_str(text: &str) -> Result<Self, InvalidMd5> {
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(InvalidMd5)
    }
}

/// Error returned for an invalid MD5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an MD5 must be the base64 encoding of 16 bytes")]
pub struct InvalidMd5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_text_is_refused() {
        for text in ["", "XUFAKrxLKna5cZ2REBfFkg", "XUFAKrxLKna5cZ2REBfF", "5d41402abc4b2a76b9719d911017c592"] {
            assert_eq!(text.parse::<ContentMd5>(), Err(InvalidMd5), "{text}");
        }
    }
}
