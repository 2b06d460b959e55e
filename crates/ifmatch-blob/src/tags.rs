//! The tags of a blob: short words for programs to sort blobs by. They belong to a version, and change without a new one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

pub use condition::{InvalidTagCondition, TagCondition};

mod condition;

/// Characters that a name or value keeps in a query.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The tags of a blob: up to ten, each with a name of 1 to 128 characters and a value of up to 256, as in Azure and S3. Which characters
/// they may have is for the dialect to say.
///
/// ```
/// use ifmatch_blob::tags::Tags;
///
/// let tags: Tags = "state=in%20review&owner=me".parse()?;
/// assert_eq!(tags.get("state"), Some("in review"));
/// assert_eq!(tags.to_string(), "owner=me&state=in%20review");
/// assert!("owner=me&owner=you".parse::<Tags>().is_err());
/// # Ok::<(), ifmatch_blob::tags::InvalidTags>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(BTreeMap<Box<str>, Box<str>>);

impl Tags {
    /// Maximum number of tags.
    pub const MAX: usize = 10;
    /// Maximum length of a name, in characters.
    pub const MAX_NAME: usize = 128;
    /// Maximum length of a value, in characters.
    pub const MAX_VALUE: usize = 256;

    /// Adds a tag.
    ///
    /// # Errors
    /// It is too long, its name is already there, or there are too many.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), InvalidTags> {
        if name.is_empty() || name.chars().count() > Self::MAX_NAME {
            return Err(InvalidTags::Name);
        }
        if value.chars().count() > Self::MAX_VALUE {
            return Err(InvalidTags::Value);
        }
        if self.0.insert(name.into(), value.into()).is_some() {
            return Err(InvalidTags::Repeated);
        }
        if self.0.len() > Self::MAX { Err(InvalidTags::TooMany) } else { Ok(()) }
    }

    /// Returns the value of a tag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| &**value)
    }

    /// Returns the names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the number of tags.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if all names and values consist of such characters.
    pub fn consist_of(&self, is_allowed: impl Fn(char) -> bool) -> bool {
        self.iter().all(|(name, value)| name.chars().chain(value.chars()).all(&is_allowed))
    }
}

/// The form of a URL's query, in which requests and stores have them.
impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let separator = if at > 0 { "&" } else { "" };
            write!(f, "{separator}{}={}", utf8_percent_encode(name, KEPT), utf8_percent_encode(value, KEPT))?;
        }
        Ok(())
    }
}

/// Parses the form of a URL's query. A plus is a space.
impl FromStr for Tags {
    type Err = InvalidTags;

    fn from_str(text: &str) -> Result<Self, InvalidTags> {
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8().map(|text| text.into_owned()).map_err(|_| InvalidTags::Encoding)
        };
        let mut tags = Self::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            tags.add(&decode(name)?, &decode(value)?)?;
        }
        Ok(tags)
    }
}

/// The reason why something can't be the tags of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidTags {
    /// A name is empty or too long.
    #[error("a tag's name has 1 to {} characters", Tags::MAX_NAME)]
    Name,
    /// A value is too long.
    #[error("a tag's value has at most {} characters", Tags::MAX_VALUE)]
    Value,
    /// A name is there twice.
    #[error("a tag's name may not be repeated")]
    Repeated,
    /// There are too many.
    #[error("a blob has at most {} tags", Tags::MAX)]
    TooMany,
    /// They aren't UTF-8.
    #[error("tags are encoded like the query of a URL, in UTF-8")]
    Encoding,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_were_written() {
        for text in ["", "a=", "a=1&b=2", "%C3%BC=%26%3D%2B%25", "a%20b=c%2Fd"] {
            assert_eq!(text.parse::<Tags>().unwrap().to_string(), text);
        }
        assert_eq!("a+b=c+d&e".parse::<Tags>().unwrap().to_string(), "a%20b=c%20d&e=");
    }

    #[test]
    fn tags_have_limits() {
        let name = |length| format!("{}=1", "ä".repeat(length));
        let value = |length| format!("a={}", "ä".repeat(length));
        let several = |count| (0..count).map(|at| format!("{at}=1")).collect::<Vec<_>>().join("&");
        for (text, error) in [
            (name(128), None),
            (name(129), Some(InvalidTags::Name)),
            ("=1".into(), Some(InvalidTags::Name)),
            (value(256), None),
            (value(257), Some(InvalidTags::Value)),
            (several(10), None),
            (several(11), Some(InvalidTags::TooMany)),
            ("a=1&%61=2".into(), Some(InvalidTags::Repeated)),
            ("a=%FF".into(), Some(InvalidTags::Encoding)),
        ] {
            assert_eq!(text.parse::<Tags>().err(), error, "{text:.40}");
        }
    }
}
