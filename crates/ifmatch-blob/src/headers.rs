//! The header fields that a store keeps with a blob.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use http::HeaderValue;
use thiserror::Error;

pub use crate::content_md5::{ContentMd5, InvalidMd5};

/// The header fields that a store keeps with a blob and returns with it.
///
/// ```
/// use ifmatch_blob::headers::{BlobHeaders, FieldText};
///
/// let headers = BlobHeaders {
///     content_type: Some(FieldText::new("text/plain")?),
///     ..BlobHeaders::default()
/// };
/// assert_eq!(headers.content_type.unwrap().as_str(), "text/plain");
/// # Ok::<(), ifmatch_blob::headers::InvalidFieldText>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobHeaders {
    /// `Content-Type`
    pub content_type: Option<FieldText>,
    /// `Content-Encoding`
    pub content_encoding: Option<FieldText>,
    /// `Content-Language`
    pub content_language: Option<FieldText>,
    /// `Content-Disposition`
    pub content_disposition: Option<FieldText>,
    /// `Cache-Control`
    pub cache_control: Option<FieldText>,
    /// MD5 of the bytes, either computed or supplied by a client.
    pub content_md5: Option<ContentMd5>,
    /// The user's own fields, by lower-case name without a dialect's prefix.
    pub metadata: BTreeMap<Box<str>, FieldText>,
    /// The state of a blob to which blocks are appended. `None` for all other blobs.
    pub append: Option<Append>,
    /// Checksum of the bytes: the name of its algorithm, a colon, and the value in base64.
    pub checksum: Option<FieldText>,
}

/// The state of a blob to which blocks are appended, and which is written in no other way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Number of blocks appended so far.
    pub blocks: u32,
    /// Nothing more can be appended.
    pub sealed: bool,
}

/// The number of blocks, and `-sealed` after it. Stores keep it in this form.
///
/// ```
/// use ifmatch_blob::headers::Append;
///
/// for append in [Append::default(), Append { blocks: 7, sealed: true }] {
///     assert_eq!(append.to_string().parse(), Ok(append));
/// }
/// assert!("+7".parse::<Append>().is_err());
/// ```
impl fmt::Display for Append {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.blocks, if self.sealed { SEALED } else { "" })
    }
}

impl FromStr for Append {
    type Err = InvalidAppend;

    fn from_str(text: &str) -> Result<Self, InvalidAppend> {
        let number = text.strip_suffix(SEALED);
        let digits = number.unwrap_or(text);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let blocks = digits.parse().ok().filter(|_| is_number).ok_or(InvalidAppend)?;
        Ok(Self { blocks, sealed: number.is_some() })
    }
}

const SEALED: &str = "-sealed";

/// Error returned for text that is not the state of an append blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the state of an append blob is a number, optionally followed by -sealed")]
pub struct InvalidAppend;

/// The value of a header field: visible ASCII characters, spaces and tabs, with no space or tab at either end.
///
/// ```
/// use ifmatch_blob::headers::FieldText;
///
/// assert_eq!(FieldText::new("text/plain")?.as_str(), "text/plain");
/// assert!(FieldText::new("grün").is_err());
/// # Ok::<(), ifmatch_blob::headers::InvalidFieldText>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldText(HeaderValue);

impl FieldText {
    /// Parses text.
    ///
    /// # Errors
    /// Fails if the text contains characters other than visible ASCII ones, spaces and tabs.
    pub fn new(text: &str) -> Result<Self, InvalidFieldText> {
        Self::from_header(HeaderValue::from_str(text).map_err(|_| InvalidFieldText)?)
    }

    /// Parses the value of a header field. Shares its memory.
    ///
    /// # Errors
    /// Fails if the value contains characters other than visible ASCII ones, spaces and tabs.
    pub fn from_header(value: HeaderValue) -> Result<Self, InvalidFieldText> {
        let text = value.to_str().map_err(|_| InvalidFieldText)?;
        if text.trim_matches([' ', '\t']).len() == text.len() { Ok(Self(value)) } else { Err(InvalidFieldText) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Returns the value for a header field. Shares the memory.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for FieldText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Error returned for text that cannot be the value of a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the fields kept with a blob consist of visible ASCII characters: encode all others")]
pub struct InvalidFieldText;
