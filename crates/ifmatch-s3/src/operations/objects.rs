//! Objects: write, read, delete.

use futures_util::{StreamExt, stream};
use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use ifmatch_blob::dialect::Client;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobInfo, Delete, MissingContainer, Opened, Put, Reading, StoreError, StoreErrorKind, Upload,
    Written,
};
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::{Preconditions, Verdict};
use ifmatch_core::range::{self, ByteRange, Limits, Representation, Selection};
use s3s::dto::{
    Checksum, ChecksumMode, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
    DeleteObjectsOutput, DeletedObject, Error, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ObjectAttributes, ObjectIdentifier, PutObjectInput, PutObjectOutput, StorageClass,
    StreamingBlob,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::buckets;
use crate::answer::BareTag;
use crate::backend::{Backend, refuse, refuse_version};
use crate::bodies::checksum::{self, with_checksums};
use crate::bodies::document::MAX_PARTS;
use crate::bodies::upload_body;
use crate::conditions::{self, WriteConditions};
use crate::convert::tags;
use crate::convert::{self, fields_of};
use crate::{error, signature};

/// Maximum number of objects deleted by one request.
const MAX_DELETED: usize = 1000;
/// Maximum number of objects deleted concurrently by one request.
const PARALLEL: usize = 16;
/// S3 has no responses of several ranges: `s3s` refuses requests for them.
const LIMITS: Limits = Limits { max_ranges: 1 };
/// What S3 doesn't implement either.
const CONDITION_OF_A_VERSION: &str = "a deletion with both a version id and a condition";
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// The type of an object without one.
const DEFAULT_TYPE: &str = "binary/octet-stream";

/// `PutObject`.
pub(crate) async fn put(
    backend: &Backend,
    request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        trailing_headers,
        ..
    } = request;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let write = WriteConditions::of(&backend.context, &Method::PUT, &blob.to_string(), &headers)?;
    let content_md5 = convert::md5(&headers)?;
    let fields = fields_of!(input);
    let body = input.body.map_or_else(s3s::Body::empty, s3s::Body::from);
    let (upload, outcome) =
        upload_body::verified(Upload::new(body), &headers, trailing_headers, None);
    let put = Put {
        headers: BlobHeaders {
            content_md5,
            checksum: upload_body::announced(&headers, None),
            ..fields.parse()?
        },
        late_checksum: outcome.kept(),
        md5: convert::md5_use(content_md5),
        length: input
            .content_length
            .and_then(|length| u64::try_from(length).ok()),
        ..Put::new(upload)
    };
    let written = store(backend, &blob, &write, put, |error| {
        outcome.explain(error, write.is_conditional())
    })
    .await?;
    Ok(S3Response::new(with_checksums!(
        outcome.checksum(),
        PutObjectOutput {
            e_tag: convert::e_tag(written.tag.as_ref()),
            server_side_encryption: backend.encryption(),
            ..PutObjectOutput::default()
        }
    )))
}

/// Writes an object on the conditions of a request.
pub(crate) async fn store(
    backend: &Backend,
    blob: &BlobPath,
    write: &WriteConditions,
    put: Put,
    explain: impl FnOnce(&StoreError) -> S3Error,
) -> S3Result<Written> {
    let store = &backend.context.store;
    let put = Put {
        preconditions: write.preconditions.clone(),
        request: write.request.clone(),
        lease: LeaseUse::default(),
        container: MissingContainer::Refuse,
        limit: backend.context.max_body,
        ..put
    };
    match store.put(blob, put).await {
        Ok(written) if written.is_replay && write.is_conditional() => {
            confirm(backend, blob, write, written).await
        }
        Ok(written) => Ok(written),
        // S3 distinguishes another version from none.
        Err(error)
            if is_precondition(&error) && write.updates() && is_missing(backend, blob).await? =>
        {
            Err(s3_error!(
                NoSuchKey,
                "there is no such object, which If-Match requires"
            ))
        }
        Err(error) => Err(explain(&error)),
    }
}

/// Rejects the response to an earlier attempt if the object was changed since.
async fn confirm(
    backend: &Backend,
    blob: &BlobPath,
    write: &WriteConditions,
    written: Written,
) -> S3Result<Written> {
    if written
        .is_current(&*backend.context.store, blob)
        .await
        .map_err(error::plain)?
    {
        return Ok(written);
    }
    let message = "an earlier attempt with this amz-sdk-invocation-id succeeded, and the object was changed since";
    let name = if write.updates() {
        "If-Match"
    } else {
        "If-None-Match"
    };
    Err(error::with_condition(
        s3_error!(PreconditionFailed, "{message}"),
        name,
    ))
}

fn is_precondition(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. })
}

/// Returns `true` if there is no object.
async fn is_missing(backend: &Backend, blob: &BlobPath) -> S3Result<bool> {
    let reading = Reading::HEAD.without_lease();
    Ok(backend
        .context
        .store
        .open(blob, reading)
        .await
        .map_err(error::plain)?
        .is_none())
}

/// Fills the fields that the responses to GET and HEAD share.
macro_rules! described {
    ($backend:expr, $found:expr, $output:ident) => {{
        let FoundObject {
            opened,
            range,
            checksum,
        } = $found;
        let (info, kept) = (&opened.info, &opened.info.headers);
        let length = range.map_or(info.length, |range| range.len());
        let range = range.map(|range| range.content_range(info.length));
        let checksum_type = checksum.checksum_type.clone();
        with_checksums!(
            checksum,
            $output {
                checksum_type,
                accept_ranges: Some("bytes".to_owned()),
                cache_control: convert::text(kept.cache_control.as_ref()),
                content_disposition: convert::text(kept.content_disposition.as_ref()),
                content_encoding: convert::text(kept.content_encoding.as_ref()),
                content_language: convert::text(kept.content_language.as_ref()),
                content_length: i64::try_from(length).ok(),
                content_range: range.and_then(|range| range.to_str().ok().map(str::to_owned)),
                content_type: convert::text(kept.content_type.as_ref())
                    .or_else(|| Some(DEFAULT_TYPE.to_owned())),
                e_tag: convert::e_tag(info.tag.as_ref()),
                last_modified: convert::timestamp(info.last_modified),
                metadata: convert::metadata(kept),
                server_side_encryption: $backend.encryption(),
                ..$output::default()
            }
        )
    }};
}

/// Reads the parameters that GET and HEAD share.
macro_rules! read_of {
    ($method:expr, $backend:expr, $request:expr) => {{
        let input = &$request.input;
        ObjectRead {
            preconditions: conditions::of_read(&$request.headers, &$request.extensions)?,
            blob: $backend.blob($request.credentials.as_ref(), &input.bucket, &input.key)?,
            version: input.version_id.as_deref(),
            part: input.part_number,
            with_checksum: is_enabled(input.checksum_mode.as_ref()),
            headers: &$request.headers,
            client: $request.extensions.get().copied(),
            method: $method,
        }
    }};
}

/// `GetObject`.
pub(crate) async fn get(
    backend: &Backend,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let request = signature::verified(request);
    let mut found = read_of!(Method::GET, backend, request)
        .open(backend)
        .await?;
    let bytes = found.range.map(|range| range.start()..range.end() + 1);
    let body = found
        .opened
        .source
        .read(bytes)
        .await
        .map_err(error::plain)?;
    let body = Some(StreamingBlob::from(s3s::Body::http_body_unsync(body)));
    let tag_count = tags::count(&found.opened.info.headers.tags);
    Ok(S3Response::new(GetObjectOutput {
        body,
        tag_count,
        ..described!(backend, found, GetObjectOutput)
    }))
}

/// `HeadObject`.
pub(crate) async fn head(
    backend: &Backend,
    request: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let request = signature::verified(request);
    let found = read_of!(Method::HEAD, backend, request)
        .open(backend)
        .await?;
    // The library knows it in answers to GET only.
    let tag_count =
        tags::count(&found.opened.info.headers.tags).map(|count| (TAG_COUNT, count.into()));
    let mut response = S3Response::new(described!(backend, found, HeadObjectOutput));
    response.headers.extend(tag_count);
    Ok(response)
}

/// Returns `true` if a client asks for the checksum.
fn is_enabled(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// A read of an object.
struct ObjectRead<'a> {
    blob: BlobPath,
    preconditions: Preconditions,
    version: Option<&'a str>,
    part: Option<i32>,
    with_checksum: bool,
    headers: &'a HeaderMap,
    client: Option<Client>,
    method: Method,
}

/// An object to send.
struct FoundObject {
    opened: Opened,
    /// The selected range, or `None` for the whole object.
    range: Option<ByteRange>,
    /// The checksum to tell.
    checksum: Checksum,
}

impl ObjectRead<'_> {
    /// Opens the object, on the conditions of the request.
    async fn open(&self, backend: &Backend) -> S3Result<FoundObject> {
        refuse_version(self.version)?;
        let reading = match range::field(self.headers) {
            _ if self.method == Method::HEAD => Reading::HEAD,
            Some(value) => Reading::of_range(value.as_bytes(), LIMITS),
            None => Reading::WHOLE,
        };
        let reading = reading.without_lease().sent_to(self.client);
        let Some(opened) = backend
            .context
            .store
            .open(&self.blob, reading)
            .await
            .map_err(error::plain)?
        else {
            return Err(not_found(backend, &self.blob).await);
        };
        let info = &opened.info;
        match self
            .preconditions
            .evaluate(&self.method, Some(&info.validators()))
        {
            Verdict::Proceed => {}
            Verdict::NotModified => return Err(error::not_modified(info)),
            Verdict::Failed(precondition) => {
                let name = error::condition(precondition);
                return Err(error::with_condition(
                    s3_error!(PreconditionFailed, "the condition {name} is false"),
                    name,
                ));
            }
        }
        check_part(self.part, self.headers)?;
        let range = self.range(backend, info)?;
        let tells = self.with_checksum && range.is_none();
        let checksum = if tells {
            checksum::of_object(info)
        } else {
            Checksum::default()
        };
        Ok(FoundObject {
            opened,
            range,
            checksum,
        })
    }

    /// Returns the selected range, or `None` for the whole object.
    fn range(&self, backend: &Backend, info: &BlobInfo) -> S3Result<Option<ByteRange>> {
        let sent = Representation {
            tag: info.tag.as_ref(),
            last_modified: Some(info.last_modified),
            len: info.length,
        };
        match range::select(self.headers, &sent, backend.context.wall(), LIMITS) {
            Selection::Whole => Ok(None),
            Selection::Parts(parts) => Ok(parts.first().copied()),
            Selection::Unsatisfiable => {
                let error = s3_error!(
                    InvalidRange,
                    "the object has {} bytes: choose a range in it",
                    info.length
                );
                Err(error::with_header(
                    error,
                    CONTENT_RANGE,
                    range::unsatisfied_content_range(info.length),
                ))
            }
        }
    }
}

/// Refuses a part other than the first, which is the whole object: a completed upload keeps none of its parts.
fn check_part(part: Option<i32>, headers: &HeaderMap) -> S3Result<()> {
    match part {
        Some(_) if range::field(headers).is_some() => Err(s3_error!(
            InvalidRequest,
            "a request has either a Range or a partNumber"
        )),
        None | Some(1) => Ok(()),
        Some(part) if !(1..=i32::from(MAX_PARTS)).contains(&part) => Err(s3_error!(
            InvalidArgument,
            "partNumber must be from 1 to {MAX_PARTS}"
        )),
        Some(_) => {
            let message = "an object has one part: omit partNumber";
            let mut error =
                S3Error::with_message(S3ErrorCode::Custom("InvalidPartNumber".into()), message);
            error.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
            Err(error)
        }
    }
}

/// Opens an object that must exist, for its properties.
pub(crate) async fn find(backend: &Backend, blob: &BlobPath) -> S3Result<Opened> {
    let opened = backend
        .context
        .store
        .open(blob, Reading::HEAD.without_lease())
        .await;
    match opened.map_err(error::plain)? {
        Some(opened) => Ok(opened),
        None => Err(not_found(backend, blob).await),
    }
}

/// Returns the error for an object that doesn't exist.
pub(crate) async fn not_found(backend: &Backend, blob: &BlobPath) -> S3Error {
    match backend.context.store.container(&blob.container).await {
        Ok(Some(_)) => s3_error!(NoSuchKey, "there is no such object"),
        Ok(None) => error::no_such_bucket(),
        Err(failed) => error::plain(failed),
    }
}

/// The names of all attributes.
const ATTRIBUTES: [&str; 5] = [
    ObjectAttributes::CHECKSUM,
    ObjectAttributes::ETAG,
    ObjectAttributes::OBJECT_PARTS,
    ObjectAttributes::OBJECT_SIZE,
    ObjectAttributes::STORAGE_CLASS,
];

/// `GetObjectAttributes`.
pub(crate) async fn attributes(
    backend: &Backend,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let info = find(backend, &blob).await?.info;
    let checksum = checksum::of_object(&info);
    // `s3s` doesn't split the list in a line of the field.
    let wanted = || {
        input
            .object_attributes
            .iter()
            .flat_map(|line| line.as_str().split(','))
            .map(str::trim)
    };
    if let Some(unknown) = wanted().find(|wanted| !ATTRIBUTES.contains(wanted)) {
        return Err(s3_error!(
            InvalidArgument,
            "{unknown} isn't an attribute of an object: choose from {}",
            ATTRIBUTES.join(", ")
        ));
    }
    let wants = |attribute| wanted().any(|wanted| wanted == attribute);
    let parts =
        checksum::number_of_parts(&checksum).filter(|_| wants(ObjectAttributes::OBJECT_PARTS));
    let total = |count| GetObjectAttributesParts {
        total_parts_count: Some(count),
        ..Default::default()
    };
    let output = GetObjectAttributesOutput {
        e_tag: convert::e_tag(info.tag.as_ref()).filter(|_| wants(ObjectAttributes::ETAG)),
        checksum: Some(checksum).filter(|_| wants(ObjectAttributes::CHECKSUM)),
        object_parts: parts.map(total),
        object_size: i64::try_from(info.length)
            .ok()
            .filter(|_| wants(ObjectAttributes::OBJECT_SIZE)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD))
            .filter(|_| wants(ObjectAttributes::STORAGE_CLASS)),
        last_modified: convert::timestamp(info.last_modified),
        ..GetObjectAttributesOutput::default()
    };
    let mut response = S3Response::new(output);
    response.extensions.insert(BareTag);
    Ok(response)
}

/// `DeleteObject`.
pub(crate) async fn delete(
    backend: &Backend,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let write = WriteConditions::of(
        &backend.context,
        &Method::DELETE,
        &blob.to_string(),
        &headers,
    )?;
    refuse(
        input.version_id.is_some() && write.updates(),
        CONDITION_OF_A_VERSION,
    )?;
    remove(backend, &blob, write).await?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Deletes an object. Without `If-Match`, there needn't be one.
async fn remove(backend: &Backend, blob: &BlobPath, write: WriteConditions) -> S3Result<()> {
    let (is_conditional, updates) = (write.is_conditional(), write.updates());
    let delete = Delete {
        preconditions: write.preconditions,
        request: write.request,
        ..Delete::default()
    };
    match backend.context.store.delete(blob, delete).await {
        Ok(()) => Ok(()),
        Err(failed) if *failed.kind() == StoreErrorKind::NotFound => {
            match not_found(backend, blob).await {
                error if !updates && *error.code() == S3ErrorCode::NoSuchKey => Ok(()),
                error => Err(error),
            }
        }
        Err(failed) => Err(error::of_store(&failed, is_conditional)),
    }
}

/// `DeleteObjects`.
pub(crate) async fn delete_several(
    backend: &Backend,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    let objects = input.delete.objects;
    if objects.is_empty() || objects.len() > MAX_DELETED {
        return Err(s3_error!(
            MalformedXML,
            "the request names no object, or more than {MAX_DELETED}"
        ));
    }
    buckets::find(backend, credentials.as_ref(), &input.bucket).await?;
    let remove = async |object: ObjectIdentifier| {
        let (key, version) = (object.key.clone(), object.version_id.clone());
        let blob = backend.blob(credentials.as_ref(), &input.bucket, &object.key);
        (
            key,
            version,
            async { remove_one(backend, &blob?, object).await }.await,
        )
    };
    let outcomes: Vec<_> = stream::iter(objects)
        .map(remove)
        .buffered(PARALLEL)
        .collect()
        .await;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, version_id, outcome) in outcomes {
        match outcome {
            Ok(()) => deleted.push(DeletedObject {
                key: Some(key),
                version_id,
                ..DeletedObject::default()
            }),
            Err(error) => errors.push(Error {
                key: Some(key),
                version_id,
                code: Some(error.code().as_str().to_owned()),
                message: error.message().map(str::to_owned),
            }),
        }
    }
    let is_quiet = input.delete.quiet.unwrap_or_default();
    let deleted = Some(deleted).filter(|_| !is_quiet);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted,
        errors: Some(errors),
        ..DeleteObjectsOutput::default()
    }))
}

/// Deletes an object of a list.
async fn remove_one(backend: &Backend, blob: &BlobPath, object: ObjectIdentifier) -> S3Result<()> {
    refuse_version(object.version_id.as_deref())?;
    refuse(
        object.version_id.is_some() && object.e_tag.is_some(),
        CONDITION_OF_A_VERSION,
    )?;
    refuse(
        object.size.is_some() || object.last_modified_time.is_some(),
        "a condition on size or date",
    )?;
    let preconditions = object.e_tag.as_ref().map(conditions::has_tag).transpose()?;
    let write = WriteConditions {
        preconditions: preconditions.unwrap_or_default(),
        request: None,
    };
    write.check_policy(&backend.context, &Method::DELETE)?;
    remove(backend, blob, write).await
}
