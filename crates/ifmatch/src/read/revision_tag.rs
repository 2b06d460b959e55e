//! The tag of a representation that is too long to hash: a revision of its record, and a fingerprint of its header fields.
//!
//! A write changes the record, so the next read finds no such tag there and makes one of a later revision. A tag of
//! a revision that two readers share is the same for both.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::{Revision, Variant};

/// Number of hexadecimal digits of the fingerprint.
const DIGITS: usize = 16;

/// A representation that is too long to hash.
pub(crate) struct LongRepresentation<'a> {
    pub(crate) variant: &'a Variant,
    /// The header fields of the response, with the service's own validators.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) len: Option<u64>,
}

/// Returns `true` if a tag is of this revision of an existing record.
pub(crate) fn is_of(tag: &EntityTag, revision: Revision) -> bool {
    revision != Revision::NONE
        && tag
            .as_bytes()
            .starts_with(format!("\"r{:x}-", revision.get()).as_bytes())
}

impl LongRepresentation<'_> {
    /// Returns the recorded tag if it is one of a revision, and for a representation with these properties.
    pub(crate) fn recognize<'t>(&self, recorded: Option<&'t EntityTag>) -> Option<&'t EntityTag> {
        recorded.filter(|tag| {
            let text = tag.as_bytes();
            text.starts_with(b"\"r")
                && text.ends_with(format!("-{}\"", self.fingerprint()).as_bytes())
        })
    }

    /// Makes the tag of a revision. A record that doesn't exist yet has none, so a random number takes its place.
    /// Returns `None` if the system has no random numbers.
    pub(crate) fn tag(&self, revision: Revision) -> Option<EntityTag> {
        let number = if revision == Revision::NONE {
            ifmatch_runtime::nonce().ok()?
        } else {
            revision.get()
        };
        EntityTag::strong(&format!("r{number:x}-{}", self.fingerprint())).ok()
    }

    fn fingerprint(&self) -> String {
        let mut text = format!("{:?}\n{}\n", self.len, self.variant.0).into_bytes();
        for name in [
            CONTENT_ENCODING,
            CONTENT_LENGTH,
            CONTENT_TYPE,
            ETAG,
            LAST_MODIFIED,
        ] {
            for value in self.headers.get_all(&name) {
                text.extend_from_slice(name.as_str().as_bytes());
                text.extend_from_slice(value.as_bytes());
                text.push(b'\n');
            }
        }
        let mut hex = ContentHash::of(&text).hex();
        hex.truncate(DIGITS);
        hex
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_tag_is_recognized_for_the_same_properties_only() {
        let variant = Variant::only();
        let (mut headers, other) = (HeaderMap::new(), HeaderMap::new());
        headers.insert(
            LAST_MODIFIED,
            HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"),
        );
        let of = |headers, len| LongRepresentation {
            variant: &variant,
            headers,
            len,
        };
        let tag = of(&headers, Some(7)).tag(Revision::NONE).unwrap();
        assert_eq!(of(&headers, Some(7)).recognize(Some(&tag)), Some(&tag));
        assert_eq!(of(&headers, Some(8)).recognize(Some(&tag)), None);
        assert_eq!(of(&other, Some(7)).recognize(Some(&tag)), None);
        assert_eq!(
            of(&headers, Some(7)).recognize(Some(&EntityTag::strong("r1").unwrap())),
            None
        );
    }

    #[test]
    fn tags_without_a_record_never_repeat() {
        let (variant, headers) = (Variant::only(), HeaderMap::new());
        let long = LongRepresentation {
            variant: &variant,
            headers: &headers,
            len: None,
        };
        assert_ne!(long.tag(Revision::NONE), long.tag(Revision::NONE));
    }
}
