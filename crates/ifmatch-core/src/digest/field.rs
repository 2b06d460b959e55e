//! `Repr-Digest` and `Content-Digest` (RFC 9530).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use thiserror::Error;

use super::{ContentHash, TagFormat};
use crate::text::header_value;

/// The algorithm's name in these fields.
const SHA_256: &str = "sha-256";

impl ContentHash {
    /// Returns the value of a `Repr-Digest` or `Content-Digest` field (RFC 9530), or `None` for BLAKE3, which isn't
    /// registered for these fields.
    ///
    /// ```
    /// # use ifmatch_core::digest::ContentHash;
    /// let value = ContentHash::of(b"").repr_digest().unwrap();
    /// assert_eq!(value, "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");
    /// ```
    pub fn repr_digest(&self) -> Option<HeaderValue> {
        matches!(self.format, TagFormat::Sha256 | TagFormat::Sha256Truncated).then(|| {
            let mut value = String::with_capacity(64);
            value.push_str(SHA_256);
            value.push_str("=:");
            STANDARD.encode_string(self.bytes, &mut value);
            value.push(':');
            header_value(value)
        })
    }

    /// Reads the SHA-256 digest of a `Repr-Digest` or `Content-Digest` field. Returns `None` if the field is absent or has
    /// only digests of other algorithms.
    ///
    /// # Errors
    ///
    /// Fails if the field isn't a dictionary, or its `sha-256` member isn't a byte sequence of 32 bytes.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderName};
    /// use ifmatch_core::digest::ContentHash;
    ///
    /// let name = HeaderName::from_static("repr-digest");
    /// let hash = ContentHash::of(b"upload");
    /// let mut headers = HeaderMap::new();
    /// headers.insert(name.clone(), hash.repr_digest().unwrap());
    /// assert_eq!(ContentHash::from_headers(&headers, name)?, Some(hash));
    /// # Ok::<(), ifmatch_core::digest::InvalidDigest>(())
    /// ```
    pub fn from_headers(
        headers: &HeaderMap,
        name: HeaderName,
    ) -> Result<Option<Self>, InvalidDigest> {
        let lines: Vec<&[u8]> = headers
            .get_all(name)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        let members: Dictionary = Parser::new(&lines.join(&b", "[..]))
            .parse()
            .map_err(|_| InvalidDigest)?;
        match members.get(SHA_256) {
            None => Ok(None),
            Some(ListEntry::Item(Item {
                bare_item: BareItem::ByteSequence(bytes),
                ..
            })) => {
                let bytes = bytes.as_slice().try_into().map_err(|_| InvalidDigest)?;
                Ok(Some(Self::from_bytes(bytes)))
            }
            Some(_) => Err(InvalidDigest),
        }
    }
}

/// A digest field is malformed.
///
/// ```
/// use http::{HeaderMap, HeaderName, HeaderValue};
/// use ifmatch_core::digest::{ContentHash, InvalidDigest};
///
/// let name = HeaderName::from_static("repr-digest");
/// let mut headers = HeaderMap::new();
/// headers.insert(name.clone(), HeaderValue::from_static("sha-256=abc"));
/// assert_eq!(ContentHash::from_headers(&headers, name), Err(InvalidDigest));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not a digest: write sha-256=:…: with the base64 of the 32 bytes between the colons (RFC 9530)"
)]
pub struct InvalidDigest;
