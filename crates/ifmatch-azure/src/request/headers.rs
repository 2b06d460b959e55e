//! Parsing of headers, and recognition of retries by them.

use std::collections::BTreeMap;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_TYPE, HOST, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use ifmatch_blob::headers::{BlobHeaders, ContentMd5, FieldText, InvalidMd5, Tier};
use ifmatch_blob::store::RequestKey;
use ifmatch_blob::tags::{InvalidTagCondition, InvalidTags, TagCondition, Tags};
use ifmatch_core::append::AppendConditions;
use ifmatch_core::lease::azure::{self, CLIENT_REQUEST_ID};
use ifmatch_core::lease::fields;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::shared_key::X_MS_DATE;

use super::snapshot::SnapshotDeletion;
use crate::auth::AccessGrant;
pub(crate) use crate::auth::COPY_SOURCE;
use crate::auth::shared_access::is_date;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::RangeDigest;

pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// The MD5 of the body or, in a response without a range, of the whole blob.
pub(crate) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The MD5 of the whole blob.
pub(crate) const BLOB_CONTENT_MD5: HeaderName = HeaderName::from_static("x-ms-blob-content-md5");
pub(crate) const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
const APPEND_POSITION: HeaderName = HeaderName::from_static("x-ms-blob-condition-appendpos");
const MAX_SIZE: HeaderName = HeaderName::from_static("x-ms-blob-condition-maxsize");
const BLOB_CONTENT_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-content-type");
const BLOB_CONTENT_ENCODING: HeaderName = HeaderName::from_static("x-ms-blob-content-encoding");
const BLOB_CONTENT_LANGUAGE: HeaderName = HeaderName::from_static("x-ms-blob-content-language");
const BLOB_CONTENT_DISPOSITION: HeaderName =
    HeaderName::from_static("x-ms-blob-content-disposition");
const BLOB_CACHE_CONTROL: HeaderName = HeaderName::from_static("x-ms-blob-cache-control");
/// The tier of a blob.
const ACCESS_TIER: HeaderName = HeaderName::from_static("x-ms-access-tier");
/// The CRC-64 of the body.
pub(crate) const CONTENT_CRC64: HeaderName = HeaderName::from_static("x-ms-content-crc64");
const PUBLIC_ACCESS: HeaderName = HeaderName::from_static("x-ms-blob-public-access");
const DELETE_SNAPSHOTS: HeaderName = HeaderName::from_static("x-ms-delete-snapshots");
/// Overrides `Range`, which some clients can't set.
const X_MS_RANGE: HeaderName = HeaderName::from_static("x-ms-range");
const TAGS: HeaderName = HeaderName::from_static("x-ms-tags");
const IF_TAGS: HeaderName = HeaderName::from_static("x-ms-if-tags");
const RANGE_MD5: HeaderName = HeaderName::from_static("x-ms-range-get-content-md5");
const RANGE_CRC64: HeaderName = HeaderName::from_static("x-ms-range-get-content-crc64");
/// Maximum length of a client request id, in bytes.
pub(crate) const MAX_CLIENT_REQUEST_ID: usize = 1024;
/// Maximum length of a multipart boundary, in bytes (RFC 2046 §5.1.1).
const MAX_BOUNDARY: usize = 70;
/// The rule for the two digests.
const ONE_DIGEST: &str = "use either the MD5 or the CRC-64, not both";
/// Prefix of metadata headers.
pub(crate) const METADATA: &str = "x-ms-meta-";
/// Maximum size of the metadata, in bytes of names and values.
const MAX_METADATA: usize = 8 * 1024;
/// Maximum size of the other headers stored with a blob, in bytes.
const MAX_STORED: usize = 8 * 1024;

/// Returns the host that the request addresses.
pub(super) fn host(head: &Parts) -> Option<&str> {
    let field = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    field.or(head.uri.authority().map(http::uri::Authority::as_str))
}

/// Returns a header that must not be repeated.
pub(super) fn one<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, AzureError> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => {
            let text = line
                .to_str()
                .map_err(|_| AzureError::invalid_header(name.as_str(), "must be visible ASCII"))?;
            Ok(Some(text.trim()))
        }
        (Some(_), Some(_)) => Err(AzureError::invalid_header(
            name.as_str(),
            "must not be repeated",
        )),
    }
}

/// Returns a header that is required.
pub(super) fn required<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<&'a str, AzureError> {
    one(headers, name)?
        .filter(|text| !text.is_empty())
        .ok_or_else(|| AzureError::missing_header(name.as_str()))
}

/// Returns the body's length.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, AzureError> {
    let missing = || {
        let message = "the request needs a Content-Length";
        AzureError::new(
            StatusCode::LENGTH_REQUIRED,
            "MissingContentLengthHeader",
            message,
        )
    };
    byte_count(headers, &CONTENT_LENGTH)?.ok_or_else(missing)
}

/// Parses a header field that states a number of bytes.
fn byte_count(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, AzureError> {
    let Some(text) = one(headers, name)? else {
        return Ok(None);
    };
    // `parse` would also take a plus sign.
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let count = digits.and_then(|digits| digits.parse().ok());
    let invalid = || AzureError::invalid_header(name.as_str(), "must be a number of bytes");
    count.map(Some).ok_or_else(invalid)
}

/// Parses the headers to store with a blob, except the metadata. If the body is the blob, the standard headers that
/// describe the body apply to it, and its MD5 is checked. Otherwise, Azure takes one of any length.
pub(super) fn stored(headers: &HeaderMap, body_is_blob: bool) -> Result<BlobHeaders, AzureError> {
    let field = |own: HeaderName, standard: HeaderName| -> Result<Option<FieldText>, AzureError> {
        let standard = if body_is_blob {
            one(headers, &standard)?
        } else {
            None
        };
        let text = one(headers, &own)?
            .or(standard)
            .filter(|text| !text.is_empty());
        text.map(|text| field_text(own.as_str(), text)).transpose()
    };
    let stored = BlobHeaders {
        content_type: field(BLOB_CONTENT_TYPE, CONTENT_TYPE)?,
        content_encoding: field(BLOB_CONTENT_ENCODING, CONTENT_ENCODING)?,
        content_language: field(BLOB_CONTENT_LANGUAGE, CONTENT_LANGUAGE)?,
        content_disposition: field(BLOB_CONTENT_DISPOSITION, CONTENT_DISPOSITION)?,
        cache_control: field(BLOB_CACHE_CONTROL, CACHE_CONTROL)?,
        content_md5: if body_is_blob {
            md5(headers, &BLOB_CONTENT_MD5)?.or(md5(headers, &CONTENT_MD5)?)
        } else {
            parse_md5(headers, &BLOB_CONTENT_MD5, ContentMd5::parse_given)?
        },
        ..BlobHeaders::default()
    };
    let BlobHeaders {
        content_type,
        content_encoding,
        content_language,
        content_disposition,
        cache_control,
        ..
    } = &stored;
    let all = [
        content_type,
        content_encoding,
        content_language,
        content_disposition,
        cache_control,
    ];
    if all
        .into_iter()
        .flatten()
        .map(|text| text.as_str().len())
        .sum::<usize>()
        > MAX_STORED
    {
        let rule = format!("the headers to store with the blob exceed {MAX_STORED} bytes in total");
        return Err(AzureError::invalid_header("x-ms-blob-…", &rule));
    }
    Ok(stored)
}

/// Parses the metadata.
pub(super) fn metadata(headers: &HeaderMap) -> Result<BTreeMap<Box<str>, FieldText>, AzureError> {
    let mut metadata = BTreeMap::new();
    let mut size = 0;
    for name in headers.keys() {
        let Some(own) = name.as_str().strip_prefix(METADATA) else {
            continue;
        };
        if !is_metadata_name(own) {
            let message = format!(
                "{name}: a metadata name consists of a-z, 0-9 and _, and does not start with a digit"
            );
            return Err(AzureError::bad_request("InvalidMetadata", message));
        }
        let value = one(headers, name)?.unwrap_or_default();
        size += own.len() + value.len();
        metadata.insert(own.into(), field_text(name.as_str(), value)?);
    }
    if size > MAX_METADATA {
        let message = format!("the metadata exceeds {MAX_METADATA} bytes");
        return Err(AzureError::bad_request("MetadataTooLarge", message));
    }
    Ok(metadata)
}

/// Parses the tags to store with a blob.
pub(super) fn tags(headers: &HeaderMap) -> Result<Tags, AzureError> {
    let invalid = |why: &str| AzureError::invalid_header(TAGS.as_str(), why);
    let tags: Tags = one(headers, &TAGS)?
        .unwrap_or_default()
        .parse()
        .map_err(|error| invalid(&InvalidTags::to_string(&error)))?;
    checked_tags(tags).map_err(invalid)
}

/// Rejects tags with characters that Azure's don't have.
pub(crate) fn checked_tags(tags: Tags) -> Result<Tags, &'static str> {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || " +-./:=_".contains(char);
    if tags.consist_of(is_allowed) {
        Ok(tags)
    } else {
        Err("tags consist of letters, digits, spaces, and + - . / : = _")
    }
}

/// Parses the condition on the tags.
pub(super) fn if_tags(headers: &HeaderMap) -> Result<Option<TagCondition>, AzureError> {
    let parse = |text: &str| {
        text.parse().map_err(|error| {
            AzureError::invalid_header(IF_TAGS.as_str(), &InvalidTagCondition::to_string(&error))
        })
    };
    one(headers, &IF_TAGS)?.map(parse).transpose()
}

/// Returns `true` for a name of metadata: a C# identifier in lower case.
fn is_metadata_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(inner)
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// Returns a value to store, if a response can have it.
fn field_text(name: &str, text: &str) -> Result<FieldText, AzureError> {
    FieldText::new(text).map_err(|error| AzureError::invalid_header(name, &error.to_string()))
}

/// Rejects a request with a malformed version, or with a client request id that is too long.
pub(super) fn check_common(headers: &HeaderMap, grant: &AccessGrant) -> Result<(), AzureError> {
    let version = one(headers, &VERSION)?;
    // A shared access signature states a version itself, so a browser can open it.
    // Any date is accepted, so newer SDKs work.
    if !version.map_or(matches!(grant, AccessGrant::SharedAccess(_)), is_date) {
        return Err(AzureError::invalid_header(
            VERSION.as_str(),
            "must be a date such as 2026-02-06",
        ));
    }
    match one(headers, &CLIENT_REQUEST_ID)? {
        Some(id) if id.len() > MAX_CLIENT_REQUEST_ID => Err(AzureError::invalid_header(
            CLIENT_REQUEST_ID.as_str(),
            "must have at most 1,024 characters",
        )),
        _ => Ok(()),
    }
}

/// Returns the boundary of a multipart body.
pub(super) fn boundary(headers: &HeaderMap) -> Result<String, AzureError> {
    let rule = "must be multipart/mixed with a boundary";
    let invalid = || AzureError::invalid_header(CONTENT_TYPE.as_str(), rule);
    let (media_type, parameters) = required(headers, &CONTENT_TYPE)?
        .split_once(';')
        .ok_or_else(invalid)?;
    let mut parameters = parameters
        .split(';')
        .filter_map(|parameter| parameter.trim().split_once('='));
    let boundary = parameters.find(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    let boundary = boundary
        .map(|(_, text)| text.trim_matches('"'))
        .filter(|text| !text.is_empty() && text.len() <= MAX_BOUNDARY);
    let is_mixed = media_type.trim().eq_ignore_ascii_case("multipart/mixed");
    boundary
        .filter(|_| is_mixed)
        .map(str::to_owned)
        .ok_or_else(invalid)
}

/// Rejects unsupported blob types.
pub(super) fn check_blob_type(headers: &HeaderMap) -> Result<(), AzureError> {
    match one(headers, &BLOB_TYPE)? {
        None | Some("" | "BlockBlob" | "AppendBlob") => Ok(()),
        Some(_) => Err(AzureError::invalid_header(
            BLOB_TYPE.as_str(),
            "only BlockBlob and AppendBlob are supported",
        )),
    }
}

/// Returns `true` if the request creates an append blob.
pub(super) fn is_append_blob(headers: &HeaderMap) -> Result<bool, AzureError> {
    Ok(one(headers, &BLOB_TYPE)? == Some("AppendBlob"))
}

/// Parses the conditions of an append.
pub(super) fn append_conditions(headers: &HeaderMap) -> Result<AppendConditions, AzureError> {
    Ok(AppendConditions {
        position: byte_count(headers, &APPEND_POSITION)?,
        max_size: byte_count(headers, &MAX_SIZE)?,
    })
}

/// Rejects a request without a blob type.
pub(super) fn require_blob_type(headers: &HeaderMap) -> Result<(), AzureError> {
    required(headers, &BLOB_TYPE).map(drop)
}

/// Rejects public access to a container.
pub(super) fn refuse_public_access(headers: &HeaderMap) -> Result<(), AzureError> {
    if one(headers, &PUBLIC_ACCESS)?.is_none_or(str::is_empty) {
        return Ok(());
    }
    let message =
        "public access is not permitted on this storage account: every request needs a signature";
    Err(AzureError::new(
        StatusCode::CONFLICT,
        "PublicAccessNotPermitted",
        message,
    ))
}

/// Parses `x-ms-delete-snapshots`.
pub(super) fn deletion(headers: &HeaderMap) -> Result<SnapshotDeletion, AzureError> {
    match one(headers, &DELETE_SNAPSHOTS)? {
        None => Ok(SnapshotDeletion::Bare),
        Some("include") => Ok(SnapshotDeletion::Include),
        Some("only") => Ok(SnapshotDeletion::Only),
        Some(_) => Err(AzureError::invalid_header(
            DELETE_SNAPSHOTS.as_str(),
            "must be 'include' or 'only'",
        )),
    }
}

/// The error for the deletion of a snapshot with its snapshots.
pub(super) fn snapshot_of_snapshot() -> AzureError {
    AzureError::invalid_header(
        DELETE_SNAPSHOTS.as_str(),
        "a snapshot has no snapshots: leave the header out",
    )
}

/// Parses the tier, which the request must have.
pub(super) fn required_tier(headers: &HeaderMap) -> Result<Tier, AzureError> {
    tier(headers)?.ok_or_else(|| AzureError::missing_header(ACCESS_TIER.as_str()))
}

/// Parses the tier: one of Azure's for block blobs.
pub(super) fn tier(headers: &HeaderMap) -> Result<Option<Tier>, AzureError> {
    let Some(text) = one(headers, &ACCESS_TIER)?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let known = ["Hot", "Cool", "Cold", "Archive"]
        .into_iter()
        .find(|tier| tier.eq_ignore_ascii_case(text));
    let invalid =
        || AzureError::invalid_header(ACCESS_TIER.as_str(), "must be Hot, Cool, Cold or Archive");
    Ok(Some(Tier {
        name: field_text(ACCESS_TIER.as_str(), known.ok_or_else(invalid)?)?,
        changed: None,
    }))
}

/// Parses the CRC-64 of the body.
pub(super) fn crc64(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Crc64>, AzureError> {
    let rule = "must be the base64 encoding of 8 bytes";
    let invalid = || AzureError::invalid_header(name.as_str(), rule);
    one(headers, name)?
        .map(|text| Crc64::parse(text).ok_or_else(invalid))
        .transpose()
}

/// Returns the requested range.
pub(super) fn range(headers: &HeaderMap) -> Result<Option<&str>, AzureError> {
    Ok(one(headers, &X_MS_RANGE)?.or(one(headers, &RANGE)?))
}

/// Returns the digest of its range that the request asks for.
pub(super) fn range_digest(headers: &HeaderMap) -> Result<Option<RangeDigest>, AzureError> {
    let is_true = |text: &str| text.eq_ignore_ascii_case("true");
    match (
        one(headers, &RANGE_MD5)?.is_some_and(is_true),
        one(headers, &RANGE_CRC64)?.is_some_and(is_true),
    ) {
        (true, true) => Err(AzureError::invalid_header(RANGE_CRC64.as_str(), ONE_DIGEST)),
        (true, false) => Ok(Some(RangeDigest::Md5)),
        (false, true) => Ok(Some(RangeDigest::Crc64)),
        (false, false) => Ok(None),
    }
}

/// Parses the digest of the body, either of the two.
pub(super) fn digests(
    headers: &HeaderMap,
) -> Result<(Option<ContentMd5>, Option<Crc64>), AzureError> {
    either((md5(headers, &CONTENT_MD5)?, crc64(headers, &CONTENT_CRC64)?))
}

/// Rejects two digests of the same bytes.
pub(super) fn either(
    digests: (Option<ContentMd5>, Option<Crc64>),
) -> Result<(Option<ContentMd5>, Option<Crc64>), AzureError> {
    match digests {
        (Some(_), Some(_)) => Err(AzureError::invalid_header(
            CONTENT_CRC64.as_str(),
            ONE_DIGEST,
        )),
        digests => Ok(digests),
    }
}

/// Parses an MD5.
pub(super) fn md5(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<ContentMd5>, AzureError> {
    parse_md5(headers, name, str::parse)
}

/// Parses an MD5 by one of its rules.
fn parse_md5(
    headers: &HeaderMap,
    name: &HeaderName,
    parse: fn(&str) -> Result<ContentMd5, InvalidMd5>,
) -> Result<Option<ContentMd5>, AzureError> {
    let md5 = one(headers, name)?
        .filter(|text| !text.is_empty())
        .map(parse)
        .transpose();
    md5.map_err(|error| AzureError::bad_request("InvalidMd5", format!("{name}: {error}")))
}

/// Returns the identity of a request: the client's id and every header that determines what the request does.
///
/// Used for lease operations, and for writes with a condition that can hold only once. Any other write may be
/// repeated on purpose, for example by a program that uses one id for all its requests; replaying an earlier response
/// would then be wrong.
pub(super) fn retry_key(head: &Parts) -> Option<RequestKey> {
    let id = one(&head.headers, &azure::CLIENT_REQUEST_ID)
        .ok()
        .flatten()
        .filter(|id| !id.is_empty())?;
    let decides = |name: &str| {
        let standard = [
            CACHE_CONTROL,
            CONTENT_TYPE,
            CONTENT_ENCODING,
            CONTENT_LANGUAGE,
            CONTENT_DISPOSITION,
        ];
        let varies = [X_MS_DATE, azure::CLIENT_REQUEST_ID];
        let listed = standard
            .iter()
            .chain(&Preconditions::HEADERS)
            .any(|other| other == name);
        let of_lease = fields::TOKEN == name || fields::HOLDER == name;
        listed
            || of_lease
            || (name.starts_with("x-ms-") && !varies.iter().any(|other| other == name))
    };
    let mut fields: Vec<(&str, &[u8])> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    fields.retain(|(name, _)| decides(name));
    fields.sort_unstable();
    let query = head.uri.query().unwrap_or_default();
    let mut parts = vec![
        id.as_bytes(),
        head.method.as_str().as_bytes(),
        query.as_bytes(),
    ];
    parts.extend(
        fields
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), value]),
    );
    Some(RequestKey::of(&parts))
}
