//! The tags of a blob: names and values by which programs classify blobs. They belong to a version, but changing them makes no new one.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

pub use condition::{InvalidTagCondition, TagCondition};

mod condition;

/// Characters that a name or value keeps in a query.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The tags of a blob: up to ten, each with a name of 1 to 128 characters and a value of up to 256, as in Azure and S3.
/// The dialect decides which characters they may contain.
///
/// ```
/// use ifmatch_blob::tags::Tags;
///
/// let tags: Tags = "state=in%20review&owner=me".parse()?;
/// assert_eq!(tags.get("state").as_deref(), Some("in review"));
/// assert_eq!(tags.to_string(), "owner=me&state=in%20review");
/// assert!("owner=me&owner=you".parse::<Tags>().is_err());
/// # Ok::<(), ifmatch_blob::tags::InvalidTags>(())
/// ```
// As text: most blobs have none, and those that have some are rarely asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(String);

impl Tags {
    /// Maximum number of tags.
    pub const MAX: usize = 10;
    /// Maximum length of a name, in characters.
    pub const MAX_NAME: usize = 128;
    /// Maximum length of a value, in characters.
    pub const MAX_VALUE: usize = 256;

    /// Creates tags from names and values, in any order.
    ///
    /// # Errors
    /// There are too many, one is too long, or a name is repeated.
    pub fn new(given: Vec<(String, String)>) -> Result<Self, InvalidTags> {
        if given.len() > Self::MAX {
            return Err(InvalidTags::TooMany);
        }
        let mut tags: Vec<(String, String)> = Vec::new();
        for (name, value) in given {
            if name.is_empty() || name.chars().count() > Self::MAX_NAME {
                return Err(InvalidTags::Name);
            }
            if value.chars().count() > Self::MAX_VALUE {
                return Err(InvalidTags::Value);
            }
            let at = tags
                .iter()
                .position(|(other, _)| *other >= name)
                .unwrap_or(tags.len());
            if tags.get(at).is_some_and(|(other, _)| *other == name) {
                return Err(InvalidTags::Repeated);
            }
            tags.insert(at, (name, value));
        }
        let mut text = String::new();
        for (name, value) in tags {
            if !text.is_empty() {
                text.push('&');
            }
            text.extend(utf8_percent_encode(&name, KEPT));
            text.push('=');
            text.extend(utf8_percent_encode(&value, KEPT));
        }
        Ok(Self(text))
    }

    /// Returns the names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (String, String)> {
        parts(&self.0).filter_map(|(name, value)| Some((decode(name)?, decode(value)?)))
    }

    /// Returns the value of a tag.
    pub fn get(&self, name: &str) -> Option<String> {
        self.iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value)
    }

    /// Returns the number of tags.
    pub fn len(&self) -> usize {
        parts(&self.0).count()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if all names and values consist of such characters.
    pub fn consist_of(&self, is_allowed: impl Fn(char) -> bool) -> bool {
        self.iter()
            .all(|(name, value)| name.chars().chain(value.chars()).all(&is_allowed))
    }
}

/// Returns the names and values of a query, which are encoded.
fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Decodes a name or value. A plus is a space.
fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().ok().map(Into::into)
}

/// The form of a URL's query, in which requests and stores have them.
impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses the form of a URL's query.
impl FromStr for Tags {
    type Err = InvalidTags;

    fn from_str(text: &str) -> Result<Self, InvalidTags> {
        let tags = parts(text).map(|(name, value)| Some((decode(name)?, decode(value)?)));
        Self::new(tags.collect::<Option<_>>().ok_or(InvalidTags::Encoding)?)
    }
}

/// The reason why something can't be the tags of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidTags {
    /// A name is empty or too long.
    #[error("a tag's name is empty, or longer than {} characters", Tags::MAX_NAME)]
    Name,
    /// A value is too long.
    #[error("a tag's value is longer than {} characters", Tags::MAX_VALUE)]
    Value,
    /// A name is repeated.
    #[error("two tags have the same name")]
    Repeated,
    /// There are too many.
    #[error("this blob would have more than {} tags", Tags::MAX)]
    TooMany,
    /// They aren't UTF-8.
    #[error("the tags aren't encoded like the query of a URL, in UTF-8")]
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
        assert_eq!(
            "a+b=c+d&e".parse::<Tags>().unwrap().to_string(),
            "a%20b=c%20d&e="
        );
    }

    #[test]
    fn tags_have_limits() {
        let name = |length| format!("{}=1", "ä".repeat(length));
        let value = |length| format!("a={}", "ä".repeat(length));
        let several = |count| {
            (0..count)
                .map(|at| format!("{at}=1"))
                .collect::<Vec<_>>()
                .join("&")
        };
        for (text, error) in [
            (name(128), None),
            (name(129), Some(InvalidTags::Name)),
            ("=1".into(), Some(InvalidTags::Name)),
            (value(256), None),
            (value(257), Some(InvalidTags::Value)),
            (several(10), None),
            (several(11), Some(InvalidTags::TooMany)),
            // The limits are of characters: the longest tags of any script are taken.
            (
                (0..10)
                    .map(|at| format!("{at}{}={}", "東".repeat(127), "𐍈".repeat(256)))
                    .collect::<Vec<_>>()
                    .join("&"),
                None,
            ),
            ("a=1&%61=2".into(), Some(InvalidTags::Repeated)),
            ("a=%FF".into(), Some(InvalidTags::Encoding)),
        ] {
            assert_eq!(text.parse::<Tags>().err(), error, "{text:.40}");
        }
    }
}
