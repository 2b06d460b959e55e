//! Metadata of objects, as the object store and R2 have it.

use std::collections::HashMap;

use chrono::DateTime;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, ObjectMeta, Result};
use worker::{HttpMetadata, Object};

use super::failure;

/// Converts attributes to R2's two kinds of metadata.
///
/// # Errors
/// R2 can't store one of the attributes.
pub(super) fn metadata(attributes: &Attributes) -> Result<(HttpMetadata, HashMap<String, String>)> {
    let (mut http, mut custom) = (HttpMetadata::default(), HashMap::new());
    for (attribute, value) in attributes {
        let field = match attribute {
            Attribute::ContentType => &mut http.content_type,
            Attribute::ContentEncoding => &mut http.content_encoding,
            Attribute::ContentLanguage => &mut http.content_language,
            Attribute::ContentDisposition => &mut http.content_disposition,
            Attribute::CacheControl => &mut http.cache_control,
            // In a JavaScript object, this name is the prototype.
            Attribute::Metadata(name) if name == "__proto__" => return Err(unsupported(attribute)),
            Attribute::Metadata(name) => {
                custom.insert(name.to_string(), value.to_string());
                continue;
            }
            other => return Err(unsupported(other)),
        };
        *field = Some(value.to_string());
    }
    Ok((http, custom))
}

fn unsupported(attribute: &Attribute) -> Error {
    Error::NotSupported {
        source: format!("R2 cannot store {attribute:?}").into(),
    }
}

/// Returns the metadata that every object has. The version is the date in milliseconds.
///
/// # Errors
/// The date is out of range.
pub(super) fn meta(object: &Object, location: Path) -> Result<ObjectMeta> {
    let millis = i64::try_from(object.uploaded().as_millis())
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    let last_modified = millis.ok_or_else(|| Error::Generic {
        store: "R2",
        source: "R2 returned an object without a valid date".into(),
    })?;
    let (e_tag, version) = (
        Some(object.http_etag()),
        Some(object.uploaded().as_millis().to_string()),
    );
    Ok(ObjectMeta {
        location,
        last_modified,
        size: object.size(),
        e_tag,
        version,
    })
}

/// Returns the attributes of an object.
///
/// # Errors
/// R2 returned metadata that isn't text.
pub(super) fn attributes(object: &Object) -> Result<Attributes> {
    let HttpMetadata {
        content_type,
        content_language,
        content_disposition,
        content_encoding,
        cache_control,
        ..
    } = object.http_metadata();
    let http = [
        (Attribute::ContentType, content_type),
        (Attribute::ContentLanguage, content_language),
        (Attribute::ContentDisposition, content_disposition),
        (Attribute::ContentEncoding, content_encoding),
        (Attribute::CacheControl, cache_control),
    ];
    let http = http
        .into_iter()
        .filter_map(|(attribute, value)| Some((attribute, value?)));
    let custom = object
        .custom_metadata()
        .map_err(|error| failure::of(&Path::default(), &error))?;
    let custom = custom
        .into_iter()
        .map(|(name, value)| (Attribute::Metadata(name.into()), value));
    let mut attributes = Attributes::with_capacity(8);
    for (attribute, value) in http.chain(custom) {
        attributes.insert(attribute, value.into());
    }
    Ok(attributes)
}

/// Returns a strong tag without its quotes, as R2's conditions take it, or `None` for anything else.
pub(super) fn raw_tag(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?
        .strip_suffix('"')
        .filter(|raw| !raw.is_empty() && !raw.contains('"'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn attributes_become_header_fields_and_custom_metadata() {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "text/plain".into());
        attributes.insert(Attribute::Metadata("note".into()), "a\nb".into());
        let (http, custom) = metadata(&attributes).unwrap();
        assert_eq!(
            http,
            HttpMetadata {
                content_type: Some("text/plain".to_owned()),
                ..HttpMetadata::default()
            }
        );
        assert_eq!(
            custom,
            HashMap::from([("note".to_owned(), "a\nb".to_owned())])
        );
        attributes.insert(Attribute::Metadata("__proto__".into()), "x".into());
        assert!(metadata(&attributes).is_err());
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
            assert_eq!(raw_tag(tag), expected, "{tag}");
        }
    }
}
