//! Get Blob, Get Blob Properties, Get Blob Metadata and Get Blob Tags.

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::headers::{ContentMd5, Tier};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, Opened, Reading};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::Verdict;
use ifmatch_core::range::{self, ByteRange, Limits, Representation, Selection};

use crate::blobs::tags;
use crate::crc64::Crc64;
use crate::error::AzureError;
use crate::request::headers::{BLOB_CONTENT_MD5, CONTENT_CRC64, CONTENT_MD5};
use crate::request::{BlobPart, GetParameters, RangeDigest, conditions};
use crate::response::{self, headers};
use crate::{lookup, snapshots};

/// Maximum length of a range with its digest, in bytes.
const MAX_DIGESTED: u64 = 4 * 1024 * 1024;
/// Several ranges are answered with the whole blob.
const LIMITS: Limits = Limits { max_ranges: 1 };
const CREATION_TIME: HeaderName = HeaderName::from_static("x-ms-creation-time");
const ACCESS_TIER: HeaderName = HeaderName::from_static("x-ms-access-tier");
const ACCESS_TIER_INFERRED: HeaderName = HeaderName::from_static("x-ms-access-tier-inferred");
const ACCESS_TIER_CHANGE_TIME: HeaderName = HeaderName::from_static("x-ms-access-tier-change-time");
const TAG_COUNT: HeaderName = HeaderName::from_static("x-ms-tag-count");
const SERVER_ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-server-encrypted");

pub(crate) async fn get_blob(
    context: &Context,
    blob: &BlobPath,
    get: GetParameters<'_>,
) -> Result<Response<BlobBody>, AzureError> {
    let reading = match get.part {
        BlobPart::Head | BlobPart::Metadata | BlobPart::Tags => Reading::HEAD,
        BlobPart::Whole => Reading::WHOLE,
        BlobPart::Range { range, .. } => Reading::of_range(range.as_bytes(), LIMITS),
    };
    let reading = reading.sent_to(get.client);
    let Some(opened) = snapshots::open(context, blob, get.snapshot, reading).await? else {
        lookup::container(context, &blob.container).await?;
        return Err(AzureError::blob_not_found());
    };
    let info = &opened.info;
    SeenLease::check(info.lease.as_ref(), get.lease).map_err(AzureError::of_blob)?;
    let verdict = match conditions::evaluate_read(&get.conditions, info)? {
        Verdict::Proceed
            if get
                .if_tags
                .as_ref()
                .is_some_and(|condition| !condition.holds(&info.headers.tags)) =>
        {
            return Err(AzureError::condition_not_met());
        }
        verdict => verdict,
    };
    match verdict {
        Verdict::Proceed => represent(context, &get, opened).await,
        Verdict::NotModified => Ok(response::not_modified(info)),
        Verdict::Failed(_) => Err(match &info.tag {
            Some(tag) => AzureError::condition_not_met().with(ETAG, tag.to_header()),
            None => AzureError::condition_not_met(),
        }),
    }
}

/// Builds the response with the requested part.
async fn represent(
    context: &Context,
    get: &GetParameters<'_>,
    mut opened: Opened,
) -> Result<Response<BlobBody>, AzureError> {
    let (part, now) = (&get.part, context.wall());
    let mut response = Response::new(BlobBody::empty());
    let info = &opened.info;
    if matches!(part, BlobPart::Tags) {
        return Ok(tags::document(&info.headers.tags));
    }
    describe(response.headers_mut(), info);
    let range = match part {
        BlobPart::Range {
            range,
            headers,
            digest,
        } => select(range, headers, info, now)?.map(|range| (range, *digest)),
        _ => None,
    };
    let md5 = info.headers.content_md5.map(ContentMd5::to_header);
    let Some((range, digest)) = range else {
        let length = if matches!(part, BlobPart::Metadata) {
            0
        } else {
            info.length
        };
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response
            .headers_mut()
            .extend(md5.map(|md5| (CONTENT_MD5, md5)));
        if matches!(part, BlobPart::Whole | BlobPart::Range { .. }) {
            *response.body_mut() = opened
                .source
                .read(None)
                .await
                .map_err(AzureError::of_blob)?;
        }
        return Ok(response);
    };
    if digest.is_some() && range.len() > MAX_DIGESTED {
        return Err(AzureError::invalid_header(
            "x-ms-range",
            "a range with its MD5 or CRC-64 can't exceed 4 MiB",
        ));
    }
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response
        .headers_mut()
        .insert(CONTENT_LENGTH, range.len().into());
    response
        .headers_mut()
        .extend(md5.map(|md5| (BLOB_CONTENT_MD5, md5)));
    response
        .headers_mut()
        .insert(CONTENT_RANGE, range.content_range(info.length));
    *response.body_mut() = opened
        .source
        .read(Some(range.start()..range.end() + 1))
        .await
        .map_err(AzureError::of_blob)?;
    match digest {
        Some(digest) => {
            let mut memory = context.documents.begin(get.client);
            memory
                .grow(usize::try_from(range.len()).unwrap_or(usize::MAX))
                .map_err(AzureError::crowded)?;
            add_digest(response, digest, memory).await
        }
        None => Ok(response),
    }
}

/// Returns the selected range, or `None` for the whole blob.
fn select(
    range: &str,
    headers: &HeaderMap,
    info: &BlobInfo,
    now: Timestamp,
) -> Result<Option<ByteRange>, AzureError> {
    let sent = Representation {
        tag: info.tag.as_ref(),
        last_modified: Some(info.last_modified),
        len: info.length,
    };
    if range::if_range(headers, &sent, now) == Some(false) {
        return Ok(None);
    }
    match Selection::parse(range.as_bytes(), info.length, LIMITS) {
        Selection::Whole => Ok(None),
        Selection::Parts(parts) => Ok(parts.first().copied()),
        Selection::Unsatisfiable => Err(AzureError::invalid_range(info.length)),
    }
}

/// Adds a digest of the body, which is short enough to be held in this memory until it is sent.
async fn add_digest(
    response: Response<BlobBody>,
    digest: RangeDigest,
    memory: DocumentMemory,
) -> Result<Response<BlobBody>, AzureError> {
    let (mut head, body) = response.into_parts();
    let bytes = body
        .collect()
        .await
        .map_err(AzureError::of_blob)?
        .to_bytes();
    match digest {
        RangeDigest::Md5 => head
            .headers
            .insert(CONTENT_MD5, ContentMd5::of(&bytes).to_header()),
        RangeDigest::Crc64 => head
            .headers
            .insert(CONTENT_CRC64, Crc64::of(&bytes).to_header()),
    };
    Ok(Response::from_parts(head, memory.hold(bytes).into()))
}

/// Adds the headers that describe a blob.
fn describe(target: &mut HeaderMap, info: &BlobInfo) {
    headers::add_stored(target, &info.headers);
    target.extend(info.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
    target.insert(LAST_MODIFIED, info.last_modified.to_header());
    target.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers::add_type(target, &info.headers);
    headers::add_copy(target, &info.headers);
    target.extend(
        HeaderValue::from_str(headers::tier(&info.headers))
            .ok()
            .map(|tier| (ACCESS_TIER, tier)),
    );
    match &info.headers.tier {
        None => drop(target.insert(ACCESS_TIER_INFERRED, HeaderValue::from_static("true"))),
        Some(Tier { changed, .. }) => {
            target.extend(changed.map(|changed| (ACCESS_TIER_CHANGE_TIME, changed.to_header())));
        }
    }
    target.insert(SERVER_ENCRYPTED, HeaderValue::from_static("false"));
    if !info.headers.tags.is_empty() {
        target.insert(TAG_COUNT, info.headers.tags.len().into());
    }
    target.insert(CREATION_TIME, headers::creation_date(info).to_header());
    headers::add_lease(target, info.lease.as_ref());
}
