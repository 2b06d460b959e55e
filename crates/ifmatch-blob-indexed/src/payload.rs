//! The payload of a record: a version byte, then postcard.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::{Revision, Version};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use super::body_files::BodyName;
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, FieldText};

/// The encoding version that this build writes.
const VERSION: u8 = 4;
/// The oldest encoding version that this build reads. Version 4 added [`Place::Appended`].
const OLDEST: u8 = 3;
/// Sufficient size for nearly all payloads, apart from an inline body, in bytes.
const USUAL_SIZE: usize = 192;

/// The payload of one version of a blob, or of a container, which has no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) hash: ContentHash,
    pub(super) length: u64,
    pub(super) place: Place,
    /// The first version's generation, or `None` in the first version itself.
    pub(super) created: Option<Revision>,
    pub(super) headers: BlobHeaders,
}

/// A body's location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the record: a small body needs neither a file nor another sync.
    Inline(Bytes),
    /// In the file with this number.
    File(u64),
    /// At the beginning of a file, to whose end others may have been appended since.
    Appended(AppendedBody),
}

/// A body in a file that was made by appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AppendedBody {
    /// The file. Its name has the hash of the bytes that it began with, which may be an earlier version's.
    pub(super) file: BodyName,
    /// The state of the hasher after the body: see [`Hasher::resume`](ifmatch_core::digest::Hasher::resume).
    pub(super) hasher: Box<[u8]>,
}

/// Error returned for bytes that aren't a payload of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum PayloadError {
    #[error(
        "the encoding version is {0}, but this release reads up to {VERSION}: run a newer release"
    )]
    Newer(u8),
    #[error("the payload is damaged")]
    Damaged,
}

impl Payload {
    /// Returns the payload of a version. Its tag begins with the hash: otherwise one of them is damaged.
    pub(super) fn of(version: &Version) -> Result<Self, PayloadError> {
        let payload = Self::decode(version.payload())?;
        let tag = payload.hash.content_tag();
        let is_tagged = version
            .tags()
            .iter()
            .all(|found| found.opaque().starts_with(tag.opaque()));
        if is_tagged {
            Ok(payload)
        } else {
            Err(PayloadError::Damaged)
        }
    }

    /// Returns the payload of a container, which has no bytes.
    pub(super) fn of_container(headers: BlobHeaders) -> Self {
        let place = Place::Inline(Bytes::new());
        Self {
            hash: ContentHash::of(b""),
            length: 0,
            place,
            created: None,
            headers,
        }
    }

    /// Returns the generation of the first version.
    pub(super) fn created(&self, version: &Version) -> Revision {
        self.created.unwrap_or(version.generation())
    }

    /// Returns the file of the body, if it has one.
    pub(super) fn file(&self) -> Option<BodyName> {
        match self.place {
            Place::File(nonce) => Some(BodyName {
                hash: self.hash,
                nonce,
            }),
            Place::Appended(AppendedBody { file, .. }) => Some(file),
            Place::Inline(_) => None,
        }
    }

    /// Encodes the payload.
    pub(super) fn encode(&self) -> Result<Bytes, postcard::Error> {
        let place = match &self.place {
            Place::Inline(bytes) => StoredPlace::Inline(bytes),
            Place::File(nonce) => StoredPlace::File(*nonce),
            Place::Appended(AppendedBody {
                file: BodyName { hash, nonce },
                hasher,
            }) => StoredPlace::Appended {
                hash: *hash,
                nonce: *nonce,
                hasher,
            },
        };
        let headers = StoredHeaders::from(&self.headers);
        let stored = Stored {
            hash: self.hash,
            length: self.length,
            place,
            created: self.created,
            headers,
        };
        let inline = if let Place::Inline(bytes) = &self.place {
            bytes.len()
        } else {
            0
        };
        let mut encoded = Vec::with_capacity(USUAL_SIZE + inline);
        encoded.push(VERSION);
        postcard::to_extend(&stored, encoded).map(Bytes::from)
    }

    /// Returns the file that an encoded payload refers to, without decoding the rest.
    pub(super) fn file_in(bytes: &[u8]) -> Result<Option<BodyName>, PayloadError> {
        let rest = after_version(bytes)?;
        let (beginning, _) =
            postcard::take_from_bytes::<Beginning<'_>>(rest).map_err(|_| PayloadError::Damaged)?;
        Ok(match beginning.place {
            StoredPlace::Inline(_) => None,
            StoredPlace::File(nonce) => Some(BodyName {
                hash: beginning.hash,
                nonce,
            }),
            StoredPlace::Appended { hash, nonce, .. } => Some(BodyName { hash, nonce }),
        })
    }

    /// Decodes a payload. An inline body shares its memory.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, PayloadError> {
        let rest = after_version(bytes)?;
        let (stored, rest) =
            postcard::take_from_bytes::<Stored<'_>>(rest).map_err(|_| PayloadError::Damaged)?;
        let place = match stored.place {
            StoredPlace::Inline(body) => Place::Inline(bytes.slice_ref(body)),
            StoredPlace::File(nonce) => Place::File(nonce),
            StoredPlace::Appended {
                hash,
                nonce,
                hasher,
            } => Place::Appended(AppendedBody {
                file: BodyName { hash, nonce },
                hasher: hasher.into(),
            }),
        };
        let is_whole = match &place {
            Place::Inline(body) => u64::try_from(body.len()) == Ok(stored.length),
            Place::File(_) | Place::Appended(_) => true,
        };
        if !rest.is_empty() || !is_whole {
            return Err(PayloadError::Damaged);
        }
        let headers = stored.headers.parse().ok_or(PayloadError::Damaged)?;
        Ok(Self {
            hash: stored.hash,
            length: stored.length,
            place,
            created: stored.created,
            headers,
        })
    }
}

/// Returns an encoded payload after its version.
fn after_version(bytes: &[u8]) -> Result<&[u8], PayloadError> {
    match bytes.split_first() {
        Some((&(OLDEST..=VERSION), rest)) => Ok(rest),
        Some((version, _)) if *version > VERSION => Err(PayloadError::Newer(*version)),
        _ => Err(PayloadError::Damaged),
    }
}

/// Data after the version byte.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    hash: ContentHash,
    length: u64,
    #[serde(borrow)]
    place: StoredPlace<'a>,
    created: Option<Revision>,
    #[serde(borrow)]
    headers: StoredHeaders<'a>,
}

/// The beginning of [`Stored`].
#[derive(Deserialize)]
struct Beginning<'a> {
    hash: ContentHash,
    #[expect(dead_code, reason = "comes before the place")]
    length: u64,
    #[serde(borrow)]
    place: StoredPlace<'a>,
}

#[derive(Serialize, Deserialize)]
enum StoredPlace<'a> {
    Inline(#[serde(serialize_with = "all_at_once")] &'a [u8]),
    File(u64),
    Appended {
        hash: ContentHash,
        nonce: u64,
        #[serde(serialize_with = "all_at_once")]
        hasher: &'a [u8],
    },
}

/// Serializes bytes as one piece: the same encoding as one by one, but faster.
fn all_at_once<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// The name of an MD5 that isn't 16 bytes long.
const OTHER_MD5: &str = " md5";

#[derive(Serialize, Deserialize)]
struct StoredHeaders<'a> {
    #[serde(borrow)]
    content_type: Option<&'a str>,
    #[serde(borrow)]
    content_encoding: Option<&'a str>,
    #[serde(borrow)]
    content_language: Option<&'a str>,
    #[serde(borrow)]
    content_disposition: Option<&'a str>,
    #[serde(borrow)]
    cache_control: Option<&'a str>,
    content_md5: Option<[u8; 16]>,
    /// Also contains the fields that requests don't name, and an MD5 of another length, under names that no other field can have.
    #[serde(borrow)]
    metadata: BTreeMap<&'a str, Cow<'a, str>>,
}

impl<'a> From<&'a BlobHeaders> for StoredHeaders<'a> {
    fn from(headers: &'a BlobHeaders) -> Self {
        let text = |value: &'a Option<FieldText>| value.as_ref().map(FieldText::as_str);
        let md5 = headers.content_md5;
        let content_md5 = md5.and_then(|md5| md5.as_bytes().try_into().ok());
        let other = md5.filter(|_| content_md5.is_none());
        Self {
            content_type: text(&headers.content_type),
            content_encoding: text(&headers.content_encoding),
            content_language: text(&headers.content_language),
            content_disposition: text(&headers.content_disposition),
            cache_control: text(&headers.cache_control),
            content_md5,
            metadata: headers
                .metadata
                .iter()
                .map(|(name, value)| (&**name, value.as_str().into()))
                .chain(headers.internal().map(|(name, text)| (name, text.into())))
                .chain(other.map(|md5| (OTHER_MD5, md5.to_string().into())))
                .collect(),
        }
    }
}

impl StoredHeaders<'_> {
    fn parse(&self) -> Option<BlobHeaders> {
        let field = |value: Option<&str>| value.map(FieldText::new).transpose().ok();
        let mut headers = BlobHeaders {
            content_type: field(self.content_type)?,
            content_encoding: field(self.content_encoding)?,
            content_language: field(self.content_language)?,
            content_disposition: field(self.content_disposition)?,
            cache_control: field(self.cache_control)?,
            content_md5: self.content_md5.map(ContentMd5::from_bytes),
            ..BlobHeaders::default()
        };
        for (name, value) in &self.metadata {
            if *name == OTHER_MD5 {
                headers.content_md5 = Some(ContentMd5::parse_given(value).ok()?);
            } else if name.starts_with(' ') {
                headers.set_internal(name, value).ok()?;
            } else {
                headers
                    .metadata
                    .insert((*name).into(), FieldText::new(value).ok()?);
            }
        }
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload() -> Payload {
        let text = |text| Some(FieldText::new(text).expect("valid"));
        let mut headers = BlobHeaders {
            content_type: text("text/plain"),
            ..BlobHeaders::default()
        };
        headers
            .metadata
            .insert("owner".into(), FieldText::new("me").expect("valid"));
        headers.content_md5 = Some(ContentMd5::of(b"hello"));
        let created = Some(Revision::new(7));
        Payload {
            hash: ContentHash::of(b"hello"),
            length: 5,
            place: Place::Inline("hello".into()),
            created,
            headers,
        }
    }

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        let appended = AppendedBody {
            file: BodyName {
                hash: ContentHash::of(b"hel"),
                nonce: 7,
            },
            hasher: b"state".as_slice().into(),
        };
        for place in [
            Place::Inline("hello".into()),
            Place::File(7),
            Place::Appended(appended),
        ] {
            let payload = Payload { place, ..payload() };
            let bytes = payload.encode().expect("plain data");
            assert_eq!(Payload::file_in(&bytes), Ok(payload.file()));
            assert_eq!(Payload::decode(&bytes), Ok(payload));
        }
    }

    #[test]
    fn a_newer_payload_is_refused() {
        let mut bytes = payload().encode().expect("plain data").to_vec();
        bytes[0] = VERSION + 1;
        assert_eq!(
            Payload::decode(&bytes.into()),
            Err(PayloadError::Newer(VERSION + 1))
        );
    }

    #[test]
    fn a_truncated_or_extended_payload_is_refused() {
        let whole = payload().encode().expect("plain data");
        for end in 0..whole.len() {
            assert_eq!(
                Payload::decode(&whole.slice(..end)),
                Err(PayloadError::Damaged),
                "cut at {end}"
            );
        }
        let longer = [&whole[..], b"x"].concat();
        assert_eq!(Payload::decode(&longer.into()), Err(PayloadError::Damaged));
    }

    #[test]
    fn an_inline_body_must_have_the_stated_length() {
        let lying = Payload {
            length: 4,
            ..payload()
        };
        assert_eq!(
            Payload::decode(&lying.encode().expect("plain data")),
            Err(PayloadError::Damaged)
        );
    }
}
