//! The attributes of an object: header fields, the user's metadata, and the stamp of the write.

use std::borrow::Cow;

use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::Revision;
use object_store::{Attribute, AttributeValue, Attributes, ObjectMeta, UpdateVersion};

use ifmatch_blob::headers::{BlobHeaders, ContentMd5, FieldText};
use ifmatch_blob::store::BlobInfo;

/// Prefix of the store's own metadata names. Every store accepts letters and digits.
const RESERVED: &str = "ifmatch";
const WRITE: &str = "ifmatchwrite";
const HASH: &str = "ifmatchhash";
const MD5: &str = "ifmatchmd5";
const REQUEST: &str = "ifmatchrequest";
const CONTAINER: &str = "ifmatchcontainer";

/// Number of digits in a write's number, and in its random number.
const GENERATION: usize = 16;

/// The syntax of metadata names in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataNaming {
    /// Names of header fields.
    Headers,
    /// Identifiers of letters, digits and underscores.
    Identifiers,
}

/// The identity of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteStamp {
    /// A random number for the write, in 16 hexadecimal digits.
    pub(super) nonce: String,
    /// The number of the write, larger than all earlier ones, if it is known before the bytes are sent.
    pub(super) generation: Option<Revision>,
    /// The hash of the bytes, if it is known before they are sent.
    pub(super) hash: Option<ContentHash>,
    /// The client's name for the request, in hexadecimal.
    pub(super) request: Option<String>,
    /// Incarnation of the blob's container.
    pub(super) incarnation: Option<Revision>,
}

/// The request that wrote an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The client's name for the request, in hexadecimal.
    pub(super) request: String,
    /// There was no object before.
    pub(super) created: bool,
}

/// One version of an object.
#[derive(Clone, Debug)]
pub(super) struct StoredVersion {
    /// The blob's properties.
    pub(super) info: BlobInfo,
    /// The store's identifiers of the version.
    pub(super) version: UpdateVersion,
    /// The number of the write.
    pub(super) write: Option<String>,
    /// The request.
    pub(super) origin: Option<Origin>,
    /// Incarnation of the container it was written to, or `None` if another program wrote it.
    pub(super) incarnation: Option<Revision>,
    /// When the version was written, in microseconds since 1970 by the store's clock.
    pub(super) written: i64,
}

impl WriteStamp {
    /// Creates the stamp of a write with its number and container still unknown.
    pub(super) fn new(nonce: String, hash: Option<ContentHash>, request: Option<String>) -> Self {
        Self {
            nonce,
            generation: None,
            hash,
            request,
            incarnation: None,
        }
    }

    /// Returns the identity of the write, in hexadecimal.
    pub(super) fn write(&self) -> String {
        match self.generation {
            Some(generation) => format!("{:016x}{}", generation.get(), self.nonce),
            None => self.nonce.clone(),
        }
    }

    /// Returns `true` if this write made the version.
    pub(super) fn made(&self, version: &StoredVersion) -> bool {
        version
            .write
            .as_ref()
            .is_some_and(|write| write.ends_with(&self.nonce))
    }

    /// Returns the attributes to store with the object.
    pub(super) fn attributes(
        &self,
        headers: &BlobHeaders,
        naming: MetadataNaming,
        created: bool,
    ) -> Attributes {
        let mut attributes = Attributes::new();
        for (attribute, value) in [
            (Attribute::ContentType, &headers.content_type),
            (Attribute::ContentEncoding, &headers.content_encoding),
            (Attribute::ContentLanguage, &headers.content_language),
            (Attribute::ContentDisposition, &headers.content_disposition),
            (Attribute::CacheControl, &headers.cache_control),
        ] {
            if let Some(value) = value {
                attributes.insert(attribute, value.as_str().to_owned().into());
            }
        }
        for (name, value) in &headers.metadata {
            attributes.insert(
                Attribute::Metadata(naming.escape(name).into()),
                value.as_str().to_owned().into(),
            );
        }
        for (name, value) in headers.internal() {
            attributes.insert(Attribute::Metadata(internal(name).into()), value.into());
        }
        let mut own = |name: &'static str, value: String| {
            attributes.insert(
                Attribute::Metadata(Cow::Borrowed(name)),
                AttributeValue::from(value),
            );
        };
        own(WRITE, self.write());
        if let Some(hash) = &self.hash {
            own(HASH, hash.hex());
        }
        if let Some(md5) = &headers.content_md5 {
            own(MD5, hex::encode(md5.as_bytes()));
        }
        if let Some(incarnation) = &self.incarnation {
            own(CONTAINER, format!("{:016x}", incarnation.get()));
        }
        if let Some(request) = &self.request {
            own(
                REQUEST,
                format!("{request}{}", if created { "-created" } else { "" }),
            );
        }
        attributes
    }
}

impl StoredVersion {
    /// Reads the version in a response.
    pub(super) fn new(meta: &ObjectMeta, attributes: &Attributes) -> Self {
        let own = |name: &'static str| attributes.get(&Attribute::Metadata(Cow::Borrowed(name)));
        let write = own(WRITE)
            .filter(|text| is_hex(text))
            .map(|text| text.to_string());
        let origin = own(REQUEST).map(|text| match text.strip_suffix("-created") {
            Some(request) => Origin {
                request: request.to_owned(),
                created: true,
            },
            None => Origin {
                request: text.to_string(),
                created: false,
            },
        });
        let incarnation = own(CONTAINER)
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .map(Revision::new);
        let info = BlobInfo {
            tag: tag(meta.e_tag.as_deref(), write.as_deref()),
            // The second after the store's date: see Timestamp::last_modified.
            last_modified: HttpDate::from_unix(meta.last_modified.timestamp().saturating_add(1)),
            length: meta.size,
            hash: own(HASH).and_then(|text| hash(text)),
            headers: headers(attributes),
            generation: write.as_deref().and_then(generation),
            created: None,
            lease: None,
        };
        let version = UpdateVersion {
            e_tag: meta.e_tag.clone(),
            version: meta.version.clone(),
        };
        Self {
            info,
            version,
            write,
            origin,
            incarnation,
            written: meta.last_modified.timestamp_micros(),
        }
    }
}

/// Returns the number of a write, if its identity contains one.
fn generation(write: &str) -> Option<Revision> {
    let number = write
        .get(..GENERATION)
        .filter(|_| write.len() == 2 * GENERATION)?;
    u64::from_str_radix(number, 16).ok().map(Revision::new)
}

/// Returns the tag of a version: the store's own and the number of the write.
pub(super) fn tag(e_tag: Option<&str>, write: Option<&str>) -> Option<EntityTag> {
    let e_tag = e_tag?;
    // Some servers omit the quotes.
    let tag = EntityTag::parse(e_tag.as_bytes())
        .or_else(|_| EntityTag::strong(e_tag))
        .ok()?;
    match write {
        Some(write) => tag.with_suffix(&format!("-{write}")).ok(),
        None => Some(tag),
    }
}

impl MetadataNaming {
    /// Escapes a name for the store: an invalid character becomes `_` and two hexadecimal digits.
    ///
    /// An underscore before two such digits is escaped as well, and so is the first letter of a name in the form of an
    /// internal one. So every name can be restored.
    fn escape(self, name: &str) -> String {
        let mut text = String::with_capacity(name.len());
        for (at, byte) in name.bytes().enumerate() {
            let plain = match byte {
                b'_' => !name.get(at + 1..at + 3).is_some_and(is_hex),
                b'a'..=b'z' | b'A'..=b'Z' => at > 0 || !name.starts_with(RESERVED),
                b'0'..=b'9' => at > 0 || self == Self::Headers,
                _ => self == Self::Headers,
            };
            if plain {
                text.push(char::from(byte));
            } else {
                text.push('_');
                text.push_str(&hex::encode([byte]));
            }
        }
        text
    }
}

/// Restores a name from [`MetadataNaming::escape`].
fn unescape(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let escaped = rest
            .strip_prefix('_')
            .and_then(|after| after.get(..2))
            .filter(|digits| is_hex(digits));
        let byte = escaped
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .filter(u8::is_ascii_graphic);
        let (char, length) = byte.map_or((char, char.len_utf8()), |byte| (char::from(byte), 3));
        name.push(char);
        rest = &rest[length..];
    }
    name
}

/// Returns the user's name of an object's metadata by its name in the store, or `None` for the service's own, such as the
/// identity of the write.
///
/// ```
/// use ifmatch_blob_objects::metadata_name;
///
/// assert_eq!(metadata_name("first_2dname").as_deref(), Some("first-name"));
/// assert_eq!(metadata_name("ifmatchwrite"), None);
/// ```
pub fn metadata_name(stored: &str) -> Option<String> {
    (!stored.starts_with(RESERVED)).then(|| unescape(stored).to_ascii_lowercase())
}

fn headers(attributes: &Attributes) -> BlobHeaders {
    let field = |attribute: Attribute| {
        attributes
            .get(&attribute)
            .and_then(|value| FieldText::new(value).ok())
    };
    let mut headers = BlobHeaders {
        content_type: field(Attribute::ContentType),
        content_encoding: field(Attribute::ContentEncoding),
        content_language: field(Attribute::ContentLanguage),
        content_disposition: field(Attribute::ContentDisposition),
        cache_control: field(Attribute::CacheControl),
        content_md5: attributes
            .get(&Attribute::Metadata(Cow::Borrowed(MD5)))
            .and_then(|text| md5(text)),
        ..BlobHeaders::default()
    };
    for name in BlobHeaders::INTERNAL {
        if let Some(text) = attributes.get(&Attribute::Metadata(internal(name).into())) {
            // As for the other fields, text that another program wrote is left out.
            let _ = headers.set_internal(name, text);
        }
    }
    for (attribute, value) in attributes {
        let Attribute::Metadata(name) = attribute else {
            continue;
        };
        if let (Some(name), Ok(value)) = (metadata_name(name), FieldText::new(value)) {
            headers.metadata.insert(name.into(), value);
        }
    }
    headers
}

/// Returns the store's name of a field that requests don't name.
fn internal(name: &str) -> String {
    format!("{RESERVED}{}", name.trim_start())
}

fn hash(text: &str) -> Option<ContentHash> {
    let bytes: [u8; 32] = hex::decode(text).ok()?.try_into().ok()?;
    Some(ContentHash::from_bytes(bytes))
}

fn md5(text: &str) -> Option<ContentMd5> {
    ContentMd5::given(&hex::decode(text).ok()?).ok()
}

/// Returns `true` if the text consists of lower-case hexadecimal digits.
fn is_hex(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tag_combines_the_stores_own_and_the_writes_number() {
        for (e_tag, write, expected) in [
            (Some("\"5d41\""), Some("0a"), Some("\"5d41-0a\"")),
            (Some("\"5d41\""), None, Some("\"5d41\"")),
            (Some("5d41"), None, Some("\"5d41\"")),
            (Some("W/\"5d41\""), Some("0a"), Some("W/\"5d41-0a\"")),
            (Some("5d 41"), Some("0a"), None),
            (None, Some("0a"), None),
        ] {
            assert_eq!(
                tag(e_tag, write).map(|tag| tag.to_string()).as_deref(),
                expected,
                "{e_tag:?} {write:?}"
            );
        }
    }

    #[test]
    fn the_number_of_a_write_is_part_of_its_identity() {
        let nonce = "00000000000000ab";
        let stamp = |generation| WriteStamp {
            generation,
            ..WriteStamp::new(nonce.into(), None, None)
        };
        for number in [
            None,
            Some(Revision::new(1_600_000_000_000_000)),
            Some(Revision::new(u64::MAX)),
        ] {
            assert_eq!(generation(&stamp(number).write()), number);
        }
        assert_eq!(generation("another program's"), None);
    }

    #[test]
    fn names_are_escaped_for_the_store() {
        for (naming, name, written) in [
            (MetadataNaming::Headers, "first-name", "first-name"),
            (MetadataNaming::Identifiers, "first-name", "first_2dname"),
            (MetadataNaming::Identifiers, "1st", "_31st"),
            (MetadataNaming::Headers, "a_b", "a_b"),
            (MetadataNaming::Headers, "a_2d", "a_5f2d"),
            (MetadataNaming::Headers, "ifmatchwrite", "_69fmatchwrite"),
        ] {
            assert_eq!(naming.escape(name), written);
            assert_eq!(unescape(written), name);
        }
        assert_eq!(unescape("other_program"), "other_program");
    }

    proptest! {
        #[test]
        fn every_name_can_be_restored(name in "[!#$%&'*+.^_`|~0-9a-z-]{1,12}") {
            for naming in [MetadataNaming::Headers, MetadataNaming::Identifiers] {
                let written = naming.escape(&name);
                prop_assert_eq!(unescape(&written), name.as_str());
                prop_assert!(!written.starts_with(RESERVED));
            }
        }
    }
}
