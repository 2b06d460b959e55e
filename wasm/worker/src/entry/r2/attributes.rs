//! What an object carries besides its bytes, in the words of the object store and in those of R2.

use std::borrow::Cow;

use chrono::DateTime;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, ObjectMeta, Result};
use serde_json::{Map, Value};

/// Puts attributes as R2's options of a write have them.
///
/// # Errors
/// One of them is of a sort that R2 does not have.
pub(super) fn metadata(attributes: &Attributes) -> Result<Map<String, Value>> {
    let (mut http, mut custom) = (Map::new(), Map::new());
    for (attribute, value) in attributes {
        let name = match attribute {
            Attribute::ContentType => "contentType",
            Attribute::ContentEncoding => "contentEncoding",
            Attribute::ContentLanguage => "contentLanguage",
            Attribute::ContentDisposition => "contentDisposition",
            Attribute::CacheControl => "cacheControl",
            // The objects of JavaScript have something else under this name.
            Attribute::Metadata(name) if name == "__proto__" => return Err(lacks(attribute)),
            Attribute::Metadata(name) => {
                custom.insert(name.to_string(), value.to_string().into());
                continue;
            }
            other => return Err(lacks(other)),
        };
        http.insert(name.to_owned(), value.to_string().into());
    }
    let both = [("httpMetadata", http), ("customMetadata", custom)];
    Ok(both.map(|(name, fields)| (name.to_owned(), fields.into())).into_iter().collect())
}

fn lacks(attribute: &Attribute) -> Error {
    Error::NotSupported { source: format!("R2 keeps no {attribute:?}").into() }
}

/// What R2 says of an object.
#[derive(Debug)]
pub(super) struct Described {
    /// When it was written, in milliseconds since 1970.
    uploaded: i64,
    size: u64,
    http_etag: String,
    version: String,
    attributes: Attributes,
}

impl Described {
    /// Reads it: a line for each of the first four, the names and values of header fields, an empty line, those of all else.
    ///
    /// # Errors
    /// It is described in other terms.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut lines = text.split('\n').map(whole);
        let mut line = || lines.next().ok_or_else(|| odd("too few lines"));
        let mut described = Self {
            uploaded: line()?.parse().map_err(|_| odd("a date that is none"))?,
            size: line()?.parse().map_err(|_| odd("a length that is none"))?,
            http_etag: line()?.into_owned(),
            version: line()?.into_owned(),
            attributes: Attributes::with_capacity(8),
        };
        loop {
            let attribute = match &*line()? {
                "" => break,
                "contentType" => Attribute::ContentType,
                "contentEncoding" => Attribute::ContentEncoding,
                "contentLanguage" => Attribute::ContentLanguage,
                "contentDisposition" => Attribute::ContentDisposition,
                "cacheControl" => Attribute::CacheControl,
                _ => {
                    line()?;
                    continue;
                }
            };
            described.attributes.insert(attribute, line()?.into_owned().into());
        }
        while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
            described.attributes.insert(Attribute::Metadata(name.into_owned().into()), value.into_owned().into());
        }
        Ok(described)
    }

    /// Date, length and version; the attributes.
    ///
    /// # Errors
    /// The date is none.
    pub(super) fn into_parts(self, location: Path) -> Result<(ObjectMeta, Attributes)> {
        let meta = ObjectMeta {
            location,
            last_modified: DateTime::from_timestamp_millis(self.uploaded).ok_or_else(|| odd("a date that is none"))?,
            size: self.size,
            e_tag: Some(self.http_etag),
            version: Some(self.version),
        };
        Ok((meta, self.attributes))
    }
}

/// What was put into one line.
pub(super) fn whole(line: &str) -> Cow<'_, str> {
    if !line.contains('\\') {
        return line.into();
    }
    let mut whole = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        whole.push(match char {
            '\\' if chars.next() == Some('n') => '\n',
            char => char,
        });
    }
    whole.into()
}

/// The tag without its quotes, as conditions of R2 take it. None: it is no single strong tag.
pub(super) fn raw(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?.strip_suffix('"').filter(|raw| !raw.is_empty() && !raw.contains('"'))
}

fn odd(what: &(impl ToString + ?Sized)) -> Error {
    Error::Generic { store: "R2", source: format!("R2 described an object by {}", what.to_string()).into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

    use super::*;

    #[test]
    fn an_object_is_what_r2_says_of_it() {
        let text = "1795257097601\n5\n\"5d41\"\nv\ncontentType\ntext/plain\ncacheExpiry\nSun\n\nifmatchwrite\n0a\nnote\n\\na\\\\n\u{e4}";
        let (meta, attributes) = Described::read(text).unwrap().into_parts(Path::from("docs/a")).unwrap();
        assert_eq!((meta.size, meta.e_tag.as_deref(), meta.version.as_deref()), (5, Some("\"5d41\""), Some("v")));
        assert_eq!(meta.last_modified.timestamp_millis(), 1_795_257_097_601);
        let found = |attribute| attributes.get(&attribute).map(|value| value.as_ref().to_owned());
        assert_eq!(found(Attribute::ContentType).as_deref(), Some("text/plain"));
        assert_eq!(found(Attribute::Metadata("note".into())).as_deref(), Some("\na\\n\u{e4}"));
        assert_eq!(found(Attribute::Metadata("ifmatchwrite".into())).as_deref(), Some("0a"));
        assert_eq!(attributes.len(), 3);
    }

    #[test]
    fn an_object_may_have_no_attributes_and_must_have_the_rest() {
        let text = "0\n0\n\"0\"\nv\n";
        let (_, attributes) = Described::read(text).unwrap().into_parts(Path::default()).unwrap();
        assert!(attributes.is_empty());
        for bad in ["", "0\n0\n\"0\"\nv", "NaN\n0\n\"0\"\nv\n", "0\n-1\n\"0\"\nv\n", "0\n0\n\"0\"\nv\ncontentType"] {
            assert!(Described::read(bad).is_err(), "{bad}");
        }
        let odd = text.replacen('0', &i64::MAX.to_string(), 1);
        assert!(Described::read(&odd).unwrap().into_parts(Path::default()).is_err());
    }

    #[test]
    fn only_one_strong_tag_is_a_condition() {
        for (tag, expected) in [
            ("\"5d41\"", Some("5d41")),
            ("5d41", None),
            ("W/\"5d41\"", None),
            ("\"5d41\", \"0a\"", None),
            ("*", None),
            ("\"\"", None),
            ("\"", None),
        ] {
            assert_eq!(raw(tag), expected, "{tag}");
        }
    }
}
