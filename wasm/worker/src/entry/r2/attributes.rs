//! What an object carries besides its bytes, in the words of the object store and in those of R2.

use std::collections::HashMap;

use chrono::DateTime;
use object_store::path::Path;
use object_store::{Attribute, AttributeValue, Attributes, Error, ObjectMeta, Result};
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

/// The attributes of an object.
pub(super) fn attributes(object: &Object) -> Result<Attributes> {
    let http = object.http_metadata();
    let mut attributes = Attributes::new();
    for (attribute, value) in [
        (Attribute::ContentType, http.content_type),
        (Attribute::ContentEncoding, http.content_encoding),
        (Attribute::ContentLanguage, http.content_language),
        (Attribute::ContentDisposition, http.content_disposition),
        (Attribute::CacheControl, http.cache_control),
    ] {
        if let Some(value) = value {
            attributes.insert(attribute, AttributeValue::from(value));
        }
    }
    for (name, value) in object.custom_metadata().map_err(|error| odd(&error))? {
        attributes.insert(Attribute::Metadata(name.into()), value.into());
    }
    Ok(attributes)
}

/// What R2 says of an object.
pub(super) fn meta(location: Path, object: &Object) -> Result<ObjectMeta> {
    let uploaded = i64::try_from(object.uploaded().as_millis()).ok().and_then(DateTime::from_timestamp_millis);
    Ok(ObjectMeta {
        location,
        last_modified: uploaded.ok_or_else(|| odd("a date that is none"))?,
        size: object.size(),
        e_tag: Some(object.http_etag()),
        version: Some(object.version()),
    })
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
    use super::*;

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
