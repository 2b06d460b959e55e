//! Entity tags (RFC 9110 §8.8.3) and lists of them.

use std::fmt;
use std::hash::{Hash, Hasher};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::fields;

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "headers")]
mod headers;

/// An entity tag: `"opaque"`, or `W/"opaque"` for a weak one.
///
/// A value of this type is always well-formed. The opaque part may be empty and may contain the bytes 0x80 to
/// 0xFF, but no space, control character or quote. Two tags are equal (`==`) if their bytes are. To compare tags as
/// preconditions do, use [`strong_eq`](Self::strong_eq) or [`weak_eq`](Self::weak_eq).
///
/// ```
/// use ifmatch_core::EntityTag;
///
/// let tag = EntityTag::parse(b"W/\"v1\"")?;
/// assert!(tag.is_weak());
/// assert_eq!(tag.opaque(), b"v1");
/// assert_eq!(tag, EntityTag::weak("v1")?);
/// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
/// ```
#[derive(Clone)]
pub struct EntityTag(HeaderValue);

impl EntityTag {
    /// Parses one tag, without surrounding whitespace.
    ///
    /// # Errors
    ///
    /// Fails if the bytes aren't an entity tag, most often because the quotes are missing.
    ///
    /// ```
    /// use ifmatch_core::EntityTag;
    ///
    /// assert!(EntityTag::parse(b"\"a,b\"").is_ok());
    /// assert!(EntityTag::parse(b"unquoted").is_err());
    /// assert!(EntityTag::parse(b"w/\"case\"").is_err());
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidTag> {
        check(bytes)?;
        HeaderValue::from_bytes(bytes)
            .map(Self)
            .map_err(|_| InvalidTag)
    }

    /// Parses the value of an `ETag` header field. Shares the header's memory.
    ///
    /// # Errors
    ///
    /// Same as [`parse`](Self::parse).
    pub fn from_header(value: &HeaderValue) -> Result<Self, InvalidTag> {
        check(value.as_bytes())?;
        let mut value = value.clone();
        value.set_sensitive(false);
        Ok(Self(value))
    }

    /// Creates a strong tag, which changes whenever the representation's bytes change.
    ///
    /// # Errors
    ///
    /// Fails if the opaque part contains a space, a control character or a quote.
    ///
    /// ```
    /// use ifmatch_core::EntityTag;
    ///
    /// assert_eq!(EntityTag::strong("v1")?.to_string(), "\"v1\"");
    /// assert!(EntityTag::strong("a b").is_err());
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn strong(opaque: &str) -> Result<Self, InvalidTag> {
        Self::parse(format!("\"{opaque}\"").as_bytes())
    }

    /// Creates a weak tag, which may stay the same when the bytes change. It never satisfies `If-Match`.
    ///
    /// # Errors
    ///
    /// Fails if the opaque part contains a space, a control character or a quote.
    pub fn weak(opaque: &str) -> Result<Self, InvalidTag> {
        Self::parse(format!("W/\"{opaque}\"").as_bytes())
    }

    /// Creates a strong tag of hexadecimal digits, a hyphen and further digits.
    #[cfg(feature = "protocol")]
    pub(crate) fn from_digits(digits: &str, hyphen: &str, more: &str) -> Self {
        Self(crate::text::header_value(
            ["\"", digits, hyphen, more, "\""].concat(),
        ))
    }

    /// Returns `true` if the tag is weak.
    ///
    /// ```
    /// # use ifmatch_core::EntityTag;
    /// assert!(EntityTag::weak("v1")?.is_weak());
    /// assert!(!EntityTag::strong("W/")?.is_weak());
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn is_weak(&self) -> bool {
        self.as_bytes().starts_with(WEAK)
    }

    /// Returns the part between the quotes.
    pub fn opaque(&self) -> &[u8] {
        let quoted = self
            .as_bytes()
            .strip_prefix(WEAK)
            .unwrap_or(self.as_bytes());
        &quoted[1..quoted.len() - 1]
    }

    /// Returns the part between the quotes as text, or `None` if it isn't UTF-8.
    ///
    /// ```
    /// # use ifmatch_core::EntityTag;
    /// assert_eq!(EntityTag::strong("17")?.opaque_str(), Some("17"));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn opaque_str(&self) -> Option<&str> {
        std::str::from_utf8(self.opaque()).ok()
    }

    /// Returns the tag as it appears in a header field.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the value of an `ETag` header field. Shares the tag's memory.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Strong comparison (RFC 9110 §8.8.3.2): `true` if both tags are strong and equal.
    ///
    /// ```
    /// # use ifmatch_core::EntityTag;
    /// let (weak, strong) = (EntityTag::weak("1")?, EntityTag::strong("1")?);
    /// assert!(strong.strong_eq(&strong));
    /// assert!(!strong.strong_eq(&weak));
    /// assert!(!weak.strong_eq(&weak));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn strong_eq(&self, other: &Self) -> bool {
        !self.is_weak() && self == other
    }

    /// Weak comparison (RFC 9110 §8.8.3.2): `true` if the opaque parts are equal.
    ///
    /// ```
    /// # use ifmatch_core::EntityTag;
    /// assert!(EntityTag::weak("1")?.weak_eq(&EntityTag::strong("1")?));
    /// assert!(!EntityTag::weak("1")?.weak_eq(&EntityTag::weak("2")?));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn weak_eq(&self, other: &Self) -> bool {
        self.opaque() == other.opaque()
    }

    /// Returns the tag with a suffix appended to its opaque part, for another content coding of the same representation.
    ///
    /// # Errors
    ///
    /// Fails if the suffix contains a space, a control character or a quote.
    ///
    /// ```
    /// # use ifmatch_core::EntityTag;
    /// assert_eq!(EntityTag::strong("v1")?.with_suffix("-gzip")?, EntityTag::strong("v1-gzip")?);
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, InvalidTag> {
        let unclosed = &self.as_bytes()[..self.as_bytes().len() - 1];
        Self::parse(&[unclosed, suffix.as_bytes(), b"\""].concat())
    }
}

/// The strong tag of a version number, such as a row's.
///
/// ```
/// # use ifmatch_core::EntityTag;
/// assert_eq!(EntityTag::from(17).to_string(), "\"17\"");
/// ```
impl From<i64> for EntityTag {
    fn from(version: i64) -> Self {
        Self(crate::text::header_value(format!("\"{version}\"")))
    }
}

impl From<EntityTag> for HeaderValue {
    fn from(tag: EntityTag) -> Self {
        tag.0
    }
}

impl PartialEq for EntityTag {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for EntityTag {}

impl Hash for EntityTag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntityTag({self})")
    }
}

/// Serialises the tag as bytes, which are parsed when deserialised.
impl Serialize for EntityTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for EntityTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Self::parse(&bytes).map_err(serde::de::Error::custom)
    }
}

/// The bytes aren't an entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not an entity tag: put it in double quotes, with W/ before them if it is weak, and no space or quote inside"
)]
pub struct InvalidTag;

/// Begins a weak tag.
const WEAK: &[u8] = b"W/";

fn check(bytes: &[u8]) -> Result<(), InvalidTag> {
    match bytes.strip_prefix(WEAK).unwrap_or(bytes) {
        // Without an early exit, so the compiler can vectorise it.
        [b'"', opaque @ .., b'"']
            if opaque
                .iter()
                .fold(true, |valid, byte| valid & is_etagc(*byte)) =>
        {
            Ok(())
        }
        _ => Err(InvalidTag),
    }
}

/// `etagc = %x21 / %x23-7E / obs-text`
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

/// The value of `If-Match` or `If-None-Match`.
///
/// Members that aren't entity tags, for example unquoted ones, match nothing and are dropped. Without other members,
/// `If-Match` then fails and `If-None-Match` succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any current representation.
    Any,
    /// These tags. The list may be empty.
    Tags(Vec<EntityTag>),
    /// A `*` with other members, or more than [`MAX_TAGS`](Self::MAX_TAGS) members. The meaning is unclear, so each
    /// precondition chooses the safe result: reads get a full response, and writes fail.
    Unreadable,
}

impl TagList {
    /// Maximum number of members. Real clients send a handful.
    pub const MAX_TAGS: usize = 1_000;

    /// Reads all lines of a header field. Returns `None` if there are none.
    ///
    /// ```
    /// use http::{header, HeaderMap, HeaderValue};
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(TagList::from_headers(&headers, header::IF_MATCH), None);
    /// headers.append(header::IF_MATCH, HeaderValue::from_static("\"a,b\", unquoted"));
    /// headers.append(header::IF_MATCH, HeaderValue::from_static("W/\"c\""));
    /// assert_eq!(
    ///     TagList::from_headers(&headers, header::IF_MATCH),
    ///     Some(TagList::Tags(vec![EntityTag::strong("a,b")?, EntityTag::weak("c")?])),
    /// );
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn from_headers(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let mut lines = fields::lines(headers, name);
        let first = lines.next()?;
        let mut reader = Reader {
            tags: Vec::with_capacity(1),
            ..Reader::default()
        };
        reader.read(first);
        lines.for_each(|line| reader.read(line));
        Some(reader.finish())
    }

    /// Returns `true` if the list contains one of `current` by strong comparison, as for `If-Match`.
    ///
    /// ```
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let weak = [EntityTag::weak("1")?];
    /// assert!(!TagList::Tags(weak.to_vec()).matches_strong(&weak));
    /// assert!(TagList::Any.matches_strong(&[]));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn matches_strong(&self, current: &[EntityTag]) -> bool {
        self.matches(current, EntityTag::strong_eq)
    }

    /// Returns `true` if the list contains one of `current` by weak comparison, as for `If-None-Match`.
    ///
    /// ```
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let list = TagList::Tags(vec![EntityTag::weak("1")?]);
    /// assert!(list.matches_weak(&[EntityTag::strong("1")?]));
    /// assert!(!TagList::Unreadable.matches_weak(&[EntityTag::strong("1")?]));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn matches_weak(&self, current: &[EntityTag]) -> bool {
        self.matches(current, EntityTag::weak_eq)
    }

    fn matches(&self, current: &[EntityTag], eq: fn(&EntityTag, &EntityTag) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags
                .iter()
                .any(|tag| current.iter().any(|other| eq(tag, other))),
            Self::Unreadable => false,
        }
    }
}

/// Collects the members of a list, line by line.
#[derive(Default)]
struct Reader {
    tags: Vec<EntityTag>,
    /// Number of members so far, malformed and empty ones included.
    elements: usize,
    /// `true` if one of them is `*`.
    star: bool,
}

impl Reader {
    fn read(&mut self, line: &HeaderValue) {
        // Nearly all lines are a single tag, which can share the memory of the line.
        if let Ok(tag) = EntityTag::from_header(line) {
            return self.add(Some(tag));
        }
        for element in elements(line.as_bytes()) {
            if self.elements > TagList::MAX_TAGS {
                return;
            }
            self.star |= element == b"*";
            self.add(EntityTag::parse(element).ok());
        }
    }

    fn add(&mut self, tag: Option<EntityTag>) {
        self.elements += 1;
        if self.elements <= TagList::MAX_TAGS {
            self.tags.extend(tag);
        }
    }

    fn finish(self) -> TagList {
        match (self.star, self.elements) {
            (true, 1) => TagList::Any,
            (false, ..=TagList::MAX_TAGS) => TagList::Tags(self.tags),
            _ => TagList::Unreadable,
        }
    }
}

/// Splits a line at commas outside quotes and trims the elements.
///
/// After a stray quote, the rest of the line counts as quoted, so no unintended member is found.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let separates = move |byte: &u8| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    };
    line.split(separates).map(<[u8]>::trim_ascii)
}
