//! What an object carries besides its bytes, in the words of the object store and in those of R2.

use std::collections::{BTreeMap, HashMap};

use chrono::DateTime;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, ObjectMeta, Result};
use serde::Deserialize;
use worker::{HttpMetadata, Object};

/// What R2 is given of an object's attributes.
pub(super) struct Metadata {
    /// The header fields.
    pub(super) http: HttpMetadata,
    /// All else.
    pub(super) custom: HashMap<String, String>,
}

/// Puts attributes as R2 wants them.
///
/// # Errors
/// One of them is of a sort that R2 does not have.
pub(super) fn metadata(attributes: &Attributes) -> Result<Metadata> {
    let mut http = HttpMetadata::default();
    let mut custom = HashMap::new();
    for (attribute, value) in attributes {
        let value = value.to_string();
        match attribute {
            Attribute::ContentType => http.content_type = Some(value),
            Attribute::ContentEncoding => http.content_encoding = Some(value),
            Attribute::ContentLanguage => http.content_language = Some(value),
            Attribute::ContentDisposition => http.content_disposition = Some(value),
            Attribute::CacheControl => http.cache_control = Some(value),
            Attribute::Metadata(name) => drop(custom.insert(name.to_string(), value)),
            other => return Err(Error::NotSupported { source: format!("R2 keeps no {other:?}").into() }),
        }
    }
    Ok(Metadata { http, custom })
}

/// What R2 says of an object.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Described {
    /// When it was written, in milliseconds since 1970.
    uploaded: i64,
    size: u64,
    http_etag: String,
    version: String,
    /// The header fields, under R2's names for them.
    #[serde(default)]
    http_metadata: BTreeMap<String, String>,
    /// All else.
    #[serde(default)]
    custom_metadata: BTreeMap<String, String>,
}

impl Described {
    /// Reads it.
    ///
    /// # Errors
    /// It is described in other terms.
    pub(super) fn read(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| odd(&error))
    }

    /// Date, length and version.
    ///
    /// # Errors
    /// The date is none.
    pub(super) fn meta(&self, location: Path) -> Result<ObjectMeta> {
        Ok(ObjectMeta {
            location,
            last_modified: DateTime::from_timestamp_millis(self.uploaded).ok_or_else(|| odd("a date that is none"))?,
            size: self.size,
            e_tag: Some(self.http_etag.clone()),
            version: Some(self.version.clone()),
        })
    }

    /// The attributes.
    pub(super) fn attributes(mut self) -> Attributes {
        let mut attributes = Attributes::new();
        for (attribute, name) in [
            (Attribute::ContentType, "contentType"),
            (Attribute::ContentEncoding, "contentEncoding"),
            (Attribute::ContentLanguage, "contentLanguage"),
            (Attribute::ContentDisposition, "contentDisposition"),
            (Attribute::CacheControl, "cacheControl"),
        ] {
            if let Some(value) = self.http_metadata.remove(name) {
                attributes.insert(attribute, value.into());
            }
        }
        for (name, value) in self.custom_metadata {
            attributes.insert(Attribute::Metadata(name.into()), value.into());
        }
        attributes
    }
}

/// An object in a listing, whose attributes R2 leaves out.
impl From<&Object> for Described {
    fn from(object: &Object) -> Self {
        Self {
            uploaded: i64::try_from(object.uploaded().as_millis()).unwrap_or(i64::MAX),
            size: object.size(),
            http_etag: object.http_etag(),
            version: object.version(),
            http_metadata: BTreeMap::new(),
            custom_metadata: BTreeMap::new(),
        }
    }
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
        let described = Described::read(
            r#"{"uploaded":1795257097601,"size":5,"httpEtag":"\"5d41\"","version":"v",
                "httpMetadata":{"contentType":"text/plain","cacheExpiry":"2026-11-22T00:00:00.000Z"},
                "customMetadata":{"ifmatchwrite":"0a","note":"a\nb"}}"#,
        );
        let described = described.unwrap();
        let meta = described.meta(Path::from("docs/a")).unwrap();
        assert_eq!((meta.size, meta.e_tag.as_deref(), meta.version.as_deref()), (5, Some("\"5d41\""), Some("v")));
        assert_eq!(meta.last_modified.timestamp_millis(), 1_795_257_097_601);
        let attributes = described.attributes();
        let found = |attribute| attributes.get(&attribute).map(|value| value.as_ref().to_owned());
        assert_eq!(found(Attribute::ContentType).as_deref(), Some("text/plain"));
        assert_eq!(found(Attribute::Metadata("note".into())).as_deref(), Some("a\nb"));
        assert_eq!(attributes.len(), 3);
    }

    #[test]
    fn an_object_may_have_no_attributes_and_must_have_the_rest() {
        let json = r#"{"uploaded":0,"size":0,"httpEtag":"\"0\"","version":"v"}"#;
        assert!(Described::read(json).unwrap().attributes().is_empty());
        assert!(Described::read("{}").is_err());
        let odd = json.replace(":0,\"size\"", &format!(":{},\"size\"", i64::MAX));
        assert!(Described::read(&odd).unwrap().meta(Path::default()).is_err());
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
