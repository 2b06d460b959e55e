//! The header fields that a store keeps with a blob, and MD5 digests of its content.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ::md5::{Digest, Md5};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use ifmatch_core::date::HttpDate;
use thiserror::Error;

use crate::tags::Tags;

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
    /// Names the list of the blocks of which this version was made. `None` for all other versions.
    pub block_list: Option<FieldText>,
    /// The copy that made the bytes, until the blob is written otherwise.
    pub copied: Option<Copied>,
    /// Checksum of the bytes: the name of its algorithm, a colon, and the value in base64.
    pub checksum: Option<FieldText>,
    /// The tags. A [change](crate::store::HeaderChange::Tags) of them makes no new version.
    pub tags: Tags,
    /// The access tier that a client chose. It is kept and told, without effect.
    pub tier: Option<Tier>,
    /// Names the version of which this is a snapshot, in a dialect's own form. `None` for blobs that requests can name.
    pub snapshot: Option<FieldText>,
    /// Differs after each snapshot of the blob, whatever else is written. `None` if there was none since the blob was created.
    pub last_snapshot: Option<FieldText>,
    /// A container's stored access policies, in a dialect's own form. `None` for blobs.
    pub policies: Option<FieldText>,
    /// Names the deletion of a container that goes on if there are no blobs. `None` for blobs.
    pub emptying: Option<FieldText>,
}

const APPEND: &str = " append";
const BLOCK_LIST: &str = " blocks";
const COPIED: &str = " copy";
const CHECKSUM: &str = " checksum";
const TIER: &str = " tier";
const SNAPSHOT: &str = " snapshot";
const LAST_SNAPSHOT: &str = " last-snapshot";
const POLICIES: &str = " policies";
const TAGS: &str = " tags";
const EMPTYING: &str = " emptying";

impl BlobHeaders {
    /// Returns about how many bytes of memory the texts take.
    pub fn size(&self) -> usize {
        let texts = [
            &self.content_type,
            &self.content_encoding,
            &self.content_language,
            &self.content_disposition,
            &self.cache_control,
            &self.block_list,
            &self.checksum,
            &self.snapshot,
            &self.last_snapshot,
            &self.policies,
            &self.emptying,
        ];
        let texts: usize = texts
            .into_iter()
            .flatten()
            .map(|text| text.as_str().len())
            .sum();
        let metadata: usize = self
            .metadata
            .iter()
            .map(|(name, value)| name.len() + value.as_str().len())
            .sum();
        let copied = self
            .copied
            .as_ref()
            .map_or(0, |copied| copied.source.as_str().len());
        let tags: usize = self
            .tags
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        texts + metadata + copied + tags
    }

    /// The names of the fields that requests don't name. Each begins with a space, which no name of the metadata contains.
    pub const INTERNAL: [&str; 10] = [
        APPEND,
        BLOCK_LIST,
        COPIED,
        CHECKSUM,
        TAGS,
        TIER,
        SNAPSHOT,
        LAST_SNAPSHOT,
        POLICIES,
        EMPTYING,
    ];

    /// Returns the fields that requests don't name, as text that a store keeps.
    pub fn internal(&self) -> impl Iterator<Item = (&'static str, String)> {
        let text = |name: &'static str, field: Option<&FieldText>| {
            field.map(|text| (name, text.as_str().to_owned()))
        };
        let copied = self.copied.as_ref();
        [
            self.append.map(|append| (APPEND, append.to_string())),
            text(BLOCK_LIST, self.block_list.as_ref()),
            copied.map(|copied| (COPIED, copied.to_string())),
            text(CHECKSUM, self.checksum.as_ref()),
            (!self.tags.is_empty()).then(|| (TAGS, self.tags.to_string())),
            self.tier.as_ref().map(|tier| (TIER, tier.to_string())),
            text(SNAPSHOT, self.snapshot.as_ref()),
            text(LAST_SNAPSHOT, self.last_snapshot.as_ref()),
            text(POLICIES, self.policies.as_ref()),
            text(EMPTYING, self.emptying.as_ref()),
        ]
        .into_iter()
        .flatten()
    }

    /// Sets one of the fields that requests don't name.
    ///
    /// # Errors
    /// The text isn't one of [`internal`](Self::internal), or the name is unknown.
    pub fn set_internal(&mut self, name: &str, text: &str) -> Result<(), InvalidInternal> {
        let field = || FieldText::new(text).map(Some).map_err(|_| InvalidInternal);
        match name {
            APPEND => self.append = Some(text.parse().map_err(|_| InvalidInternal)?),
            BLOCK_LIST => self.block_list = field()?,
            COPIED => self.copied = Some(text.parse()?),
            CHECKSUM => self.checksum = field()?,
            TAGS => self.tags = text.parse().map_err(|_| InvalidInternal)?,
            TIER => self.tier = Some(text.parse()?),
            SNAPSHOT => self.snapshot = field()?,
            LAST_SNAPSHOT => self.last_snapshot = field()?,
            POLICIES => self.policies = field()?,
            EMPTYING => self.emptying = field()?,
            _ => return Err(InvalidInternal),
        }
        Ok(())
    }
}

/// Error returned for text that isn't the value of an internal field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stores don't keep this header field with a blob")]
pub struct InvalidInternal;

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
        write!(
            f,
            "{}{}",
            self.blocks,
            if self.sealed { SEALED } else { "" }
        )
    }
}

impl FromStr for Append {
    type Err = InvalidAppend;

    fn from_str(text: &str) -> Result<Self, InvalidAppend> {
        let number = text.strip_suffix(SEALED);
        let digits = number.unwrap_or(text);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let blocks = digits
            .parse()
            .ok()
            .filter(|_| is_number)
            .ok_or(InvalidAppend)?;
        Ok(Self {
            blocks,
            sealed: number.is_some(),
        })
    }
}

const SEALED: &str = "-sealed";

/// Error returned for text that isn't the state of an append blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the state of an append blob is a number, optionally followed by -sealed")]
pub struct InvalidAppend;

/// An access tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The name, without spaces.
    pub name: FieldText,
    /// When it was set, or `None` if it came with the blob's content.
    pub changed: Option<HttpDate>,
}

/// The name, and the date in seconds since 1970. Stores keep it in this form.
///
/// ```
/// use ifmatch_blob::headers::{FieldText, Tier};
/// use ifmatch_core::date::HttpDate;
///
/// let name = FieldText::new("Cool").unwrap();
/// for changed in [None, Some(HttpDate::from_unix(1_800_000_000))] {
///     let tier = Tier { name: name.clone(), changed };
///     assert_eq!(tier.to_string().parse(), Ok(tier));
/// }
/// assert!("Cool today".parse::<Tier>().is_err());
/// ```
impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        match self.changed {
            Some(changed) => write!(f, " {}", changed.unix()),
            None => Ok(()),
        }
    }
}

impl FromStr for Tier {
    type Err = InvalidInternal;

    fn from_str(text: &str) -> Result<Self, InvalidInternal> {
        let (name, changed) = match text.split_once(' ') {
            Some((name, seconds)) => (name, Some(seconds.parse().map_err(|_| InvalidInternal)?)),
            None => (text, None),
        };
        Ok(Self {
            name: FieldText::new(name).map_err(|_| InvalidInternal)?,
            changed: changed.map(HttpDate::from_unix),
        })
    }
}

/// A completed copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The id that its response had, without spaces.
    pub id: FieldText,
    /// The URL of the source, without its query, which may contain a signature.
    pub source: FieldText,
    /// Number of bytes copied.
    pub length: u64,
    /// When the copy was made.
    pub date: HttpDate,
}

/// The id, the length, the date in seconds since 1970, and the source. Stores keep it in this form.
///
/// ```
/// use ifmatch_blob::headers::{Copied, FieldText};
/// use ifmatch_core::date::HttpDate;
///
/// let text = |text| FieldText::new(text).unwrap();
/// let source = text("http://localhost/photos/a%20b");
/// let copied = Copied { id: text("7f3a"), source, length: 5, date: HttpDate::from_unix(1_800_000_000) };
/// assert_eq!(copied.to_string().parse(), Ok(copied));
/// assert!("7f3a 5".parse::<Copied>().is_err());
/// ```
impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            source,
            length,
            date,
        } = self;
        write!(
            f,
            "{} {length} {} {}",
            id.as_str(),
            date.unix(),
            source.as_str()
        )
    }
}

impl FromStr for Copied {
    type Err = InvalidInternal;

    fn from_str(text: &str) -> Result<Self, InvalidInternal> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().ok_or(InvalidInternal);
        let field = |text| FieldText::new(text).map_err(|_| InvalidInternal);
        let number = |text: &str| text.parse::<u64>().map_err(|_| InvalidInternal);
        let (id, length, date) = (field(next()?)?, number(next()?)?, number(next()?)?);
        let date = HttpDate::from_unix(date.try_into().map_err(|_| InvalidInternal)?);
        Ok(Self {
            id,
            source: field(next()?)?,
            length,
            date,
        })
    }
}

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
    /// The text contains characters other than visible ASCII ones, spaces and tabs, or a space or tab is at one of its ends.
    pub fn new(text: &str) -> Result<Self, InvalidFieldText> {
        Self::from_header(HeaderValue::from_str(text).map_err(|_| InvalidFieldText)?)
    }

    /// Parses the value of a header field. Shares its memory.
    ///
    /// # Errors
    /// The value contains characters other than visible ASCII ones, spaces and tabs, or a space or tab is at one of its ends.
    pub fn from_header(value: HeaderValue) -> Result<Self, InvalidFieldText> {
        let text = value.to_str().map_err(|_| InvalidFieldText)?;
        if text.trim_matches([' ', '\t']).len() == text.len() {
            Ok(Self(value))
        } else {
            Err(InvalidFieldText)
        }
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

/// Error returned for text that can't be the value of a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a header field to keep with the blob has characters other than visible ASCII. Encode them"
)]
pub struct InvalidFieldText;

/// MD5 digest of a blob's bytes, as in `Content-MD5`, or what a client gave as such. It detects accidental damage, not tampering.
///
/// ```
/// use ifmatch_blob::headers::ContentMd5;
///
/// let md5 = ContentMd5::of(b"hello");
/// assert_eq!(md5.to_string(), "XUFAKrxLKna5cZ2REBfFkg==");
/// assert_eq!(md5.to_string().parse(), Ok(md5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentMd5 {
    length: u8,
    /// Zeros from `length` on.
    bytes: [u8; Self::MAX_LEN],
}

impl ContentMd5 {
    /// Maximum length in bytes.
    pub const MAX_LEN: usize = 64;

    /// Computes the MD5 of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_bytes(Md5::digest(bytes).into())
    }

    /// Creates a digest from its raw bytes.
    pub fn from_bytes(digest: [u8; 16]) -> Self {
        Self::padded(16, &digest)
    }

    /// Creates a digest from bytes that a client gave, which are never compared with the blob's.
    ///
    /// # Errors
    /// [`InvalidMd5::Given`] if `given` is empty or longer than [`MAX_LEN`](Self::MAX_LEN).
    pub fn given(given: &[u8]) -> Result<Self, InvalidMd5> {
        match u8::try_from(given.len()) {
            Ok(length) if (1..=Self::MAX_LEN).contains(&given.len()) => {
                Ok(Self::padded(length, given))
            }
            _ => Err(InvalidMd5::Given),
        }
    }

    /// `length` is the number of bytes, at most [`MAX_LEN`](Self::MAX_LEN).
    fn padded(length: u8, given: &[u8]) -> Self {
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..given.len()].copy_from_slice(given);
        Self { length, bytes }
    }

    /// Parses the base64 of bytes that a client [gave](Self::given).
    ///
    /// # Errors
    /// The text isn't base64, or has none of the possible lengths.
    pub fn parse_given(text: &str) -> Result<Self, InvalidMd5> {
        Self::given(&STANDARD.decode(text).map_err(|_| InvalidMd5::Given)?)
    }

    /// Returns the raw bytes: 16, unless a client gave others.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the value for a header field, in base64.
    pub fn to_header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Formats the digest as base64.
impl fmt::Display for ContentMd5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.as_bytes()))
    }
}

/// Parses the base64 of 16 bytes.
impl FromStr for ContentMd5 {
    type Err = InvalidMd5;

    fn from_str(text: &str) -> Result<Self, InvalidMd5> {
        match Self::parse_given(text) {
            Ok(md5) if md5.length == 16 => Ok(md5),
            _ => Err(InvalidMd5::Digest),
        }
    }
}

/// Error returned for an invalid MD5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidMd5 {
    /// It isn't the digest of any bytes.
    #[error("the MD5 isn't the base64 encoding of 16 bytes")]
    Digest,
    /// It can't be kept as what a client [gave](ContentMd5::given).
    #[error(
        "the MD5 isn't the base64 encoding of 1 to {} bytes",
        ContentMd5::MAX_LEN
    )]
    Given,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_text_is_refused() {
        for text in [
            "",
            "XUFAKrxLKna5cZ2REBfFkg",
            "XUFAKrxLKna5cZ2REBfF",
            "5d41402abc4b2a76b9719d911017c592",
        ] {
            assert_eq!(
                text.parse::<ContentMd5>(),
                Err(InvalidMd5::Digest),
                "{text}"
            );
        }
        let too_long = STANDARD.encode([7; ContentMd5::MAX_LEN + 1]);
        for text in ["", "XUFAKrxLKna5cZ2REBfFkg", &too_long] {
            assert_eq!(
                ContentMd5::parse_given(text),
                Err(InvalidMd5::Given),
                "{text}"
            );
        }
    }
}
