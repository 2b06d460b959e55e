//! Uploads in parts.
//!
//! Parts arrive in any order, and replace each other. To complete an upload is to write an object with its parts' bytes,
//! on the conditions of the request, in one step. Interleavings that matter:
//!
//! - Two requests complete an upload: one of them claims it, by a write on the condition of its version. The other is told to try
//!   again, and then gets the result of the first.
//! - A request that completes an upload ends in a crash: the next one takes over its claim, which was no longer renewed. Until then,
//!   the upload takes parts again.
//! - A request that completes an upload stops for longer than its claim lasts, and another one completes it: before its write, the
//!   first one finds its claim lost. It is told to try again.
//! - An upload ends, and its parts are removed, between two reads of another request: the request lists the parts before it loads the
//!   upload. If any part is missing, it finds the upload ended.
//! - A part is replaced or removed before it is read: its tag differs, and nothing is written, unless the bytes are the same. A client
//!   that sends a part twice, since it hasn't seen the first response, may list the tag of either response.
//! - An upload is aborted while it is completed: one of both changes it first, and the other fails.
//! - A part arrives after its upload was completed or aborted: it is removed again.
//! - A part arrives while its upload is completed: it stays, since it may have replaced another one, and its client is told to try
//!   again. If the completion hasn't read the part yet, and the bytes are others, it fails as above, and the upload takes parts again:
//!   the client sends the part once more, and lists its new tag. Otherwise the upload is completed with the part that was read.
//! - The bucket is replaced: the new one has none of the parts, and the write fails.

mod claim;
mod complete;
mod upload;

use std::cmp::Ordering;

use http::HeaderMap;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::store::{Delete, Put, StoreError, StoreErrorKind, Upload as Body, Written};
use ifmatch_runtime::nonce;
use s3s::auth::Credentials;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload,
    Part as ListedPart, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use time::OffsetDateTime;

use crate::backend::{Backend, refuse};
use crate::bodies::checksum::{self, ChecksumPlan, with_checksums};
use crate::bodies::document::MAX_PARTS;
use crate::bodies::{memory, upload_body};
use crate::convert::{self, fields_of};
use crate::error;
use crate::operations::{buckets, copy};
use upload::{Upload, UploadLocation, UploadState};

pub(crate) use complete::complete;
pub(crate) use upload::collect;

/// Maximum number of entries of a listing.
const MAX_ENTRIES: i32 = 1000;

/// `CreateMultipartUpload`.
pub(crate) async fn create(
    backend: &Backend,
    request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let plan = ChecksumPlan::new(
        input.checksum_algorithm.as_ref(),
        input.checksum_type.as_ref(),
    )?;
    let fields = fields_of!(input);
    // So that the completion needn't fail.
    fields.clone().parse()?;
    let random = || {
        nonce().map_err(|_| s3_error!(ServiceUnavailable, "the system provides no random numbers"))
    };
    let id = format!("{:016x}{:016x}", random()?, random()?);
    let place = place(backend, credentials.as_ref(), &input.bucket, &id).await?;
    let initiated = backend.context.wall().last_modified().unix();
    let upload = Upload {
        key: input.key.clone(),
        fields,
        checksum: plan,
        initiated,
        state: UploadState::Open,
    };
    place
        .save(&*backend.context.store, &upload, None)
        .await
        .map_err(error::plain)?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(id),
        checksum_algorithm: Some(plan.algorithm.dto()),
        checksum_type: Some(plan.kind()),
        server_side_encryption: backend.encryption(),
        ..CreateMultipartUploadOutput::default()
    }))
}

/// Returns the place of an upload to an existing bucket.
async fn place(
    backend: &Backend,
    credentials: Option<&Credentials>,
    bucket: &str,
    id: &str,
) -> S3Result<UploadLocation> {
    let (container, info) = buckets::find(backend, credentials, bucket).await?;
    Ok(UploadLocation::new(container, &info, id))
}

/// `UploadPart`.
pub(crate) async fn put_part(
    backend: &Backend,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        trailing_headers,
        ..
    } = request;
    let place = place(
        backend,
        credentials.as_ref(),
        &input.bucket,
        &input.upload_id,
    )
    .await?;
    let content_md5 = convert::md5(&headers)?;
    let upload = input.body.map_or_else(s3s::Body::empty, s3s::Body::from);
    let part = NewPart {
        place: &place,
        key: &input.key,
        number: input.part_number,
    };
    let keeps = Some(part.check(backend).await?.algorithm);
    let (upload, outcome) =
        upload_body::verified(Body::new(upload), &headers, trailing_headers, keeps);
    let checksum = upload_body::announced(&headers, keeps);
    let put = Put {
        headers: BlobHeaders {
            content_md5,
            checksum,
            ..BlobHeaders::default()
        },
        late_checksum: outcome.kept(),
        md5: convert::md5_use(content_md5),
        length: input
            .content_length
            .and_then(|length| u64::try_from(length).ok()),
        ..Put::new(upload)
    };
    let tag = part
        .store(backend, put, |failed| outcome.explain(failed, false))
        .await?
        .tag;
    Ok(S3Response::new(with_checksums!(
        outcome.checksum(),
        UploadPartOutput {
            e_tag: convert::e_tag(tag.as_ref()),
            server_side_encryption: backend.encryption(),
            ..UploadPartOutput::default()
        }
    )))
}

/// `UploadPartCopy`.
pub(crate) async fn copy_part(
    backend: &Backend,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    let place = place(
        backend,
        credentials.as_ref(),
        &input.bucket,
        &input.upload_id,
    )
    .await?;
    let source =
        copy::SourceObject::of(backend, credentials.as_ref(), &input.copy_source, &headers)?;
    let (_, mut opened) = source.open(backend, &headers).await?;
    let range = input
        .copy_source_range
        .as_deref()
        .map(|range| parse_range(range, opened.info.length))
        .transpose()?;
    let length = range
        .as_ref()
        .map_or(opened.info.length, |range| range.end - range.start);
    let bytes = opened.source.read(range).await.map_err(error::plain)?;
    let part = NewPart {
        place: &place,
        key: &input.key,
        number: input.part_number,
    };
    let keeps = Some(part.check(backend).await?.algorithm);
    let (bytes, outcome) = upload_body::verified(Body::new(bytes), &HeaderMap::new(), None, keeps);
    let put = Put {
        length: Some(length),
        late_checksum: outcome.kept(),
        ..Put::new(bytes)
    };
    let written = part
        .store(backend, put, |failed| outcome.explain(failed, false))
        .await?;
    let result = with_checksums!(
        outcome.checksum(),
        CopyPartResult {
            e_tag: convert::e_tag(written.tag.as_ref()),
            last_modified: convert::timestamp(written.last_modified),
        }
    );
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        server_side_encryption: backend.encryption(),
        ..UploadPartCopyOutput::default()
    }))
}

/// Parses `x-amz-copy-source-range`, which has the form `bytes=first-last`.
fn parse_range(text: &str, length: u64) -> S3Result<std::ops::Range<u64>> {
    let bounds = text
        .strip_prefix("bytes=")
        .and_then(|text| text.split_once('-'));
    // The parser of numbers takes a sign, too.
    let number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse::<u64>().ok())
            .flatten()
    };
    let bounds = bounds.and_then(|(first, last)| Some((number(first)?, number(last)?)));
    match bounds {
        Some((first, last)) if first <= last && last < length => Ok(first..last + 1),
        _ => Err(s3_error!(
            InvalidArgument,
            "x-amz-copy-source-range must be bytes=first-last, within the source"
        )),
    }
}

/// A part to store.
struct NewPart<'a> {
    place: &'a UploadLocation,
    key: &'a str,
    number: i32,
}

impl NewPart<'_> {
    /// Stores a part if its upload, which was checked before, takes parts also after its bytes have arrived.
    async fn store(
        &self,
        backend: &Backend,
        put: Put,
        explain: impl FnOnce(&StoreError) -> S3Error,
    ) -> S3Result<Written> {
        let store = &*backend.context.store;
        let path = self.place.part(self.number)?;
        let put = Put {
            limit: backend.context.max_body,
            ..put
        };
        let written = store
            .put(&path, put)
            .await
            .map_err(|failed| explain(&failed))?;
        if let Err(refused) = self.check(backend).await {
            // Otherwise the upload may take parts again, and this one may have replaced one that its completion lists.
            if *refused.code() == S3ErrorCode::NoSuchUpload {
                // A part that is left is collected later.
                drop(
                    store
                        .delete(&path, Delete::of_version(written.tag.as_ref()))
                        .await,
                );
            }
            return Err(refused);
        }
        Ok(written)
    }

    /// Returns the checksum that the object will have, if the upload takes parts.
    async fn check(&self, backend: &Backend) -> S3Result<ChecksumPlan> {
        if !(1..=i32::from(MAX_PARTS)).contains(&self.number) {
            return Err(s3_error!(
                InvalidArgument,
                "the number of a part must be from 1 to {MAX_PARTS}"
            ));
        }
        let Upload {
            state, checksum, ..
        } = self
            .place
            .find(&*backend.context.store, self.key)
            .await?
            .upload;
        require_open(backend, &state)?;
        Ok(checksum)
    }
}

/// Refuses an upload that has ended, or that another request is completing.
fn require_open(backend: &Backend, state: &UploadState) -> S3Result<()> {
    match state {
        UploadState::Open => Ok(()),
        UploadState::Completing(since) if claim::is_stale(backend, *since) => Ok(()),
        UploadState::Completing(_) => Err(claim::in_progress()),
        UploadState::Done { .. } => Err(upload::no_such_upload()),
    }
}

/// `AbortMultipartUpload`.
pub(crate) async fn abort(
    backend: &Backend,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    let store = &*backend.context.store;
    let place = place(
        backend,
        credentials.as_ref(),
        &input.bucket,
        &input.upload_id,
    )
    .await?;
    let found = place.find(store, &input.key).await?;
    require_open(backend, &found.upload.state)?;
    match place.remove(store, found.tag.as_ref()).await {
        Ok(()) => {}
        Err(failed) => match failed.kind() {
            StoreErrorKind::PreconditionFailed { .. } => return Err(claim::in_progress()),
            StoreErrorKind::NotFound => return Err(upload::no_such_upload()),
            _ => return Err(error::plain(failed)),
        },
    }
    place.remove_parts(store).await;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

/// `ListParts`.
pub(crate) async fn list_parts(
    backend: &Backend,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    let store = &*backend.context.store;
    let place = place(
        backend,
        credentials.as_ref(),
        &input.bucket,
        &input.upload_id,
    )
    .await?;
    let after = input.part_number_marker.unwrap_or_default();
    let max_parts = input.max_parts.unwrap_or(MAX_ENTRIES).clamp(0, MAX_ENTRIES);
    let limit = usize::try_from(max_parts).unwrap_or_default();
    let (found, mut parts) = place
        .find_with_parts(store, &input.key, after, limit + 1)
        .await?;
    let Upload {
        state,
        checksum: plan,
        ..
    } = found.upload;
    if matches!(state, UploadState::Done { .. }) {
        return Err(upload::no_such_upload());
    }
    let is_truncated = parts.len() > limit;
    parts.truncate(limit);
    let next = parts.last().map(|part| part.number);
    let parts = parts.into_iter().map(|part| {
        let checksum = plan
            .algorithm
            .told_if_known(checksum::kept_of(&part.info, plan.algorithm).as_deref());
        with_checksums!(
            checksum,
            ListedPart {
                part_number: Some(part.number),
                size: i64::try_from(part.length).ok(),
                e_tag: convert::e_tag(part.tag.as_ref()),
                last_modified: convert::timestamp(part.info.last_modified),
            }
        )
    });
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(after),
        next_part_number_marker: next.filter(|_| is_truncated),
        max_parts: Some(max_parts),
        is_truncated: Some(is_truncated),
        checksum_algorithm: Some(plan.algorithm.dto()),
        checksum_type: Some(plan.kind()),
        parts: Some(parts.collect()),
        ..ListPartsOutput::default()
    }))
}

/// `ListMultipartUploads`.
pub(crate) async fn list(
    backend: &Backend,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    refuse(
        input
            .delimiter
            .as_ref()
            .is_some_and(|delimiter| !delimiter.is_empty()),
        "a delimiter for uploads",
    )?;
    let place = place(backend, credentials.as_ref(), &input.bucket, "").await?;
    buckets::check_encoding(input.encoding_type.as_ref())?;
    let encode = |name: &str| buckets::encoded(name, input.encoding_type.as_ref());
    let mut memory = memory::of_response(backend, &extensions)?;
    let found = upload::of_bucket(backend, &place, &mut memory)
        .await
        .map_err(error::plain)?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let (key_marker, id_marker) = (
        input.key_marker.unwrap_or_default(),
        input.upload_id_marker.unwrap_or_default(),
    );
    // Without a key, an id is no position.
    let is_after = |key: &str, id: &str| match key.cmp(&key_marker) {
        Ordering::Equal => !id_marker.is_empty() && id > id_marker.as_str(),
        order => order.is_gt(),
    };
    let max_uploads = input
        .max_uploads
        .unwrap_or(MAX_ENTRIES)
        .clamp(1, MAX_ENTRIES);
    let limit = usize::try_from(max_uploads).unwrap_or(1);
    let listed = found
        .into_iter()
        .filter(|(upload, id)| upload.key.starts_with(&prefix) && is_after(&upload.key, id));
    let mut uploads: Vec<_> = listed
        .take(limit + 1)
        .map(|(upload, id)| entry(&upload, id, encode))
        .collect();
    let is_truncated = uploads.len() > limit;
    uploads.truncate(limit);
    let last = uploads.last().filter(|_| is_truncated);
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(encode(&prefix)),
        next_key_marker: last.and_then(|last| last.key.clone()),
        next_upload_id_marker: last.and_then(|last| last.upload_id.clone()),
        key_marker: Some(encode(&key_marker)),
        encoding_type: input.encoding_type.clone(),
        upload_id_marker: Some(id_marker),
        max_uploads: Some(max_uploads),
        is_truncated: Some(is_truncated),
        uploads: Some(uploads),
        ..ListMultipartUploadsOutput::default()
    }))
}

/// Returns an upload as an item of a listing.
fn entry(upload: &Upload, id: String, encode: impl Fn(&str) -> String) -> MultipartUpload {
    let initiated = OffsetDateTime::from_unix_timestamp(upload.initiated).ok();
    MultipartUpload {
        key: Some(encode(&upload.key)),
        upload_id: Some(id),
        initiated: initiated.map(Into::into),
        checksum_algorithm: Some(upload.checksum.algorithm.dto()),
        checksum_type: Some(upload.checksum.kind()),
        ..MultipartUpload::default()
    }
}
