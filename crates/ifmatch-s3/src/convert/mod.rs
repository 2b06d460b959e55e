//! Values of the store in S3's form, and the reverse.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, FieldText};
use ifmatch_blob::store::Md5Use;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use s3s::dto::{ETag, Timestamp};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

pub(crate) mod tags;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Maximum total size of the user's own fields, in bytes.
const MAX_METADATA: usize = 2 * 1024;

/// The header fields of a request to keep with an object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ObjectFields {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) metadata: Option<HashMap<String, String>>,
    /// The tags as they were sent.
    #[serde(default)]
    pub(crate) tagging: Option<String>,
}

/// Reads the header fields of a request to keep with an object.
macro_rules! fields_of {
    ($input:expr) => {
        $crate::convert::ObjectFields {
            content_type: $input.content_type,
            content_encoding: $input.content_encoding,
            content_language: $input.content_language,
            content_disposition: $input.content_disposition,
            cache_control: $input.cache_control,
            metadata: $input.metadata,
            tagging: $input.tagging,
        }
    };
}
pub(crate) use fields_of;

impl ObjectFields {
    /// Returns the fields in the form of the store.
    pub(crate) fn parse(self) -> S3Result<BlobHeaders> {
        let text = |text: Option<String>| text.map(|text| field(&text)).transpose();
        let encoding = self
            .content_encoding
            .map(|codings| without_chunks(&codings))
            .filter(|text| !text.is_empty());
        let own = self.metadata.unwrap_or_default();
        if own
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            > MAX_METADATA
        {
            return Err(s3_error!(
                MetadataTooLarge,
                "the metadata exceeds {MAX_METADATA} bytes"
            ));
        }
        let metadata = own
            .into_iter()
            .map(|(name, value)| Ok((name.to_ascii_lowercase().into(), field(&value)?)));
        Ok(BlobHeaders {
            content_type: text(self.content_type)?,
            content_encoding: text(encoding)?,
            content_language: text(self.content_language)?,
            content_disposition: text(self.content_disposition)?,
            cache_control: text(self.cache_control)?,
            metadata: metadata.collect::<S3Result<_>>()?,
            tags: tags::parse(self.tagging.as_deref())?,
            ..BlobHeaders::default()
        })
    }
}

/// Returns a value without the spaces around it.
fn field(text: &str) -> S3Result<FieldText> {
    FieldText::new(text.trim_matches([' ', '\t']))
        .map_err(|error| s3_error!(InvalidArgument, "{error}"))
}

/// Returns the content codings without the request's, which S3 doesn't keep.
fn without_chunks(codings: &str) -> String {
    let kept: Vec<_> = codings
        .split(',')
        .map(str::trim)
        .filter(|coding| *coding != "aws-chunked")
        .collect();
    kept.join(", ")
}

/// Returns how the store treats the MD5 of a body: it is computed only to verify the request's, since responses don't have it.
pub(crate) fn md5_use(given: Option<ContentMd5>) -> Md5Use {
    if given.is_some() {
        Md5Use::Computed
    } else {
        Md5Use::AsGiven
    }
}

/// Parses `Content-MD5`. `s3s` takes an empty one for none.
pub(crate) fn md5(headers: &HeaderMap) -> S3Result<Option<ContentMd5>> {
    let parse = |value: &HeaderValue| value.to_str().ok().and_then(|text| text.parse().ok());
    let malformed = || s3_error!(InvalidDigest, "Content-MD5 must be 16 bytes in base64");
    headers
        .get(CONTENT_MD5)
        .map(|value| parse(value).ok_or_else(malformed))
        .transpose()
}

/// Returns the text of a field.
pub(crate) fn text(field: Option<&FieldText>) -> Option<String> {
    field.map(|field| field.as_str().to_owned())
}

/// Returns the user's own fields, or `None` if there are none.
pub(crate) fn metadata(headers: &BlobHeaders) -> Option<HashMap<String, String>> {
    let own = headers
        .metadata
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_str().to_owned()));
    Some(own.collect()).filter(|own: &HashMap<_, _>| !own.is_empty())
}

/// Returns a tag in S3's form.
pub(crate) fn e_tag(tag: Option<&EntityTag>) -> Option<ETag> {
    let tag = tag?;
    let opaque = String::from_utf8_lossy(tag.opaque()).into_owned();
    Some(if tag.is_weak() {
        ETag::Weak(opaque)
    } else {
        ETag::Strong(opaque)
    })
}

/// Returns a date in S3's form.
pub(crate) fn timestamp(date: HttpDate) -> Option<Timestamp> {
    OffsetDateTime::from_unix_timestamp(date.unix())
        .ok()
        .map(Timestamp::from)
}
