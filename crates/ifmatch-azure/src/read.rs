//! Get Blob, Get Blob Properties and Get Blob Metadata.

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::lease::{self, LeaseUse, azure};
use ifmatch_core::precondition::Verdict;
use ifmatch_core::range::{self, ByteRange, Limits, Representation, Selection};

use super::error::{self, AzureError};
use super::{Call, conditions, container, fields, md5, response};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::ContentMd5;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, Opened, Reading, StoreErrorKind};

/// Overrides `Range`, which some clients cannot set.
const X_MS_RANGE: HeaderName = HeaderName::from_static("x-ms-range");
const RANGE_MD5: HeaderName = HeaderName::from_static("x-ms-range-get-content-md5");
/// Maximum length of a range with an MD5, in bytes.
const MAX_MD5_RANGE: u64 = 4 * 1024 * 1024;
const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
const CREATION_TIME: HeaderName = HeaderName::from_static("x-ms-creation-time");
const SERVER_ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-server-encrypted");

pub(super) async fn read(call: &Call, blob: &BlobPath) -> Result<Response<BlobBody>, AzureError> {
    let headers = &call.head.headers;
    let conditions = conditions::of_read(headers)?;
    let id = azure::id(headers, azure::ID)?;
    let opened = open(call, blob, wanted(call)?).await?;
    let (info, now) = (&opened.info, call.shared.now());
    lease::check(info.lease.as_ref(), LeaseUse::Read(id), now)
        .map_err(|failure| AzureError::of_blob(StoreErrorKind::LeaseFailed(failure)))?;
    match conditions::evaluate_read(&conditions, info)? {
        Verdict::Proceed => represent(call, opened, now).await,
        Verdict::NotModified => {
            let mut response = response::empty(StatusCode::NOT_MODIFIED, info.tag.as_ref(), Some(info.last_modified));
            response.headers_mut().remove(CONTENT_LENGTH);
            error::mark_not_modified(&mut response);
            Ok(response)
        }
        Verdict::Failed(_) => Err(match &info.tag {
            Some(tag) => AzureError::condition_not_met().with(ETAG, tag.to_header()),
            None => AzureError::condition_not_met(),
        }),
    }
}

/// Opens a blob. The error says if the container or the blob is missing.
pub(super) async fn open(call: &Call, blob: &BlobPath, reading: Reading) -> Result<Opened, AzureError> {
    if let Some(opened) = call.shared.store.open(blob, reading).await.map_err(AzureError::of_blob)? {
        return Ok(opened);
    }
    container::find(call, &blob.container).await?;
    Err(AzureError::blob_not_found())
}

/// Returns `true` if the response includes the content.
fn sends_bytes(call: &Call) -> bool {
    call.head.method == Method::GET && call.query.get("comp").is_none()
}

fn wanted(call: &Call) -> Result<Reading, AzureError> {
    Ok(match range_of(&call.head.headers)? {
        _ if !sends_bytes(call) => Reading::HEAD,
        Some(_) => Reading::RANGES,
        None => Reading::WHOLE,
    })
}

/// Returns the requested range.
fn range_of(headers: &HeaderMap) -> Result<Option<&str>, AzureError> {
    Ok(fields::one(headers, &X_MS_RANGE)?.or(fields::one(headers, &RANGE)?))
}

async fn represent(call: &Call, mut opened: Opened, now: Timestamp) -> Result<Response<BlobBody>, AzureError> {
    let mut response = Response::new(BlobBody::empty());
    let info = &opened.info;
    describe(response.headers_mut(), info, now);
    let md5 = info.headers.content_md5.map(ContentMd5::to_header);
    if !sends_bytes(call) {
        // The response to HEAD carries the length of the content that it omits.
        let length = if call.head.method == Method::HEAD { info.length } else { 0 };
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response.headers_mut().extend(md5.map(|md5| (md5::CONTENT_MD5, md5)));
        return Ok(response);
    }
    let Some(part) = part(&call.head.headers, info, now)? else {
        response.headers_mut().insert(CONTENT_LENGTH, info.length.into());
        response.headers_mut().extend(md5.map(|md5| (md5::CONTENT_MD5, md5)));
        *response.body_mut() = opened.source.read(None).await.map_err(AzureError::of_blob)?;
        return Ok(response);
    };
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response.headers_mut().insert(CONTENT_LENGTH, part.len().into());
    response.headers_mut().extend(md5.map(|md5| (md5::BLOB_CONTENT_MD5, md5)));
    response.headers_mut().insert(CONTENT_RANGE, part.content_range(info.length));
    let wants_md5 = fields::one(&call.head.headers, &RANGE_MD5)?.is_some_and(|text| text.eq_ignore_ascii_case("true"));
    if wants_md5 && part.len() > MAX_MD5_RANGE {
        return Err(AzureError::invalid_field(RANGE_MD5.as_str(), "the range must have at most 4 MiB"));
    }
    let body = opened.source.read(Some(part.start()..part.end() + 1)).await.map_err(AzureError::of_blob)?;
    *response.body_mut() = body;
    if wants_md5 { with_md5(response).await } else { Ok(response) }
}

/// Returns the requested range, or `None` for the whole blob, which is also sent for several ranges.
fn part(headers: &HeaderMap, info: &BlobInfo, now: Timestamp) -> Result<Option<ByteRange>, AzureError> {
    let sent = Representation { tag: info.tag.as_ref(), last_modified: Some(info.last_modified), len: info.length };
    let Some(range) = range_of(headers)? else { return Ok(None) };
    if range::if_range(headers, &sent, now) == Some(false) {
        return Ok(None);
    }
    match Selection::parse(range.as_bytes(), info.length, Limits { max_ranges: 1 }) {
        Selection::Whole => Ok(None),
        Selection::Parts(parts) => Ok(parts.first().copied()),
        Selection::Unsatisfiable => Err(AzureError::invalid_range(info.length)),
    }
}

/// Adds the MD5 of the body, which is short enough to be buffered.
async fn with_md5(response: Response<BlobBody>) -> Result<Response<BlobBody>, AzureError> {
    let (mut head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(AzureError::of_blob)?.to_bytes();
    head.headers.insert(md5::CONTENT_MD5, ContentMd5::of(&bytes).to_header());
    Ok(Response::from_parts(head, bytes.into()))
}

/// Adds the headers that describe a blob.
fn describe(headers: &mut HeaderMap, info: &BlobInfo, now: Timestamp) {
    fields::add_kept(headers, &info.headers);
    headers.extend(info.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
    headers.insert(LAST_MODIFIED, info.last_modified.to_header());
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(BLOB_TYPE, HeaderValue::from_static("BlockBlob"));
    headers.insert(SERVER_ENCRYPTED, HeaderValue::from_static("false"));
    headers.extend(info.created.map(|created| (CREATION_TIME, creation_date(created).to_header())));
    fields::add_lease(headers, info.lease.as_ref(), now);
}

/// Returns the second in which a blob was created.
pub(super) fn creation_date(created: Timestamp) -> HttpDate {
    HttpDate::from_unix((created.micros() / 1_000_000).cast_signed())
}
