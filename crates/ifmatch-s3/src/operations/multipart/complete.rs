//! `CompleteMultipartUpload`.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BoxError, LateChecksum, Put, Reading, RequestKey, StoreError, StoreErrorKind, Upload as Body,
};
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_runtime::task;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{
    Checksum, ChecksumType, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CompletedPart, ETag,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::claim::{UploadClaim, in_progress, is_stale};
use super::upload::{
    LoadedUpload, StoredPart, Upload, UploadLocation, UploadState, no_such_upload,
};
use crate::backend::Backend;
use crate::bodies::checksum::{self, CHECKSUM, DigestAlgorithm, with_checksums};
use crate::bodies::document::MAX_PARTS;
use crate::bodies::upload_body::{self, BodyRefusal};
use crate::conditions::{self, WriteConditions};
use crate::operations::objects;
use crate::{convert, error};

/// Minimum length of all parts but the last, in bytes.
const MIN_PART: u64 = 5 * 1024 * 1024;

/// Completes an upload. It continues if the client disconnects.
pub(crate) async fn complete(
    backend: &Backend,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let S3Request {
        input,
        credentials,
        headers,
        ..
    } = request;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let place = super::place(
        backend,
        credentials.as_ref(),
        &input.bucket,
        &input.upload_id,
    )
    .await?;
    let wanted = wanted(
        input
            .multipart_upload
            .and_then(|upload| upload.parts)
            .unwrap_or_default(),
    )?;
    let size = input.mpu_object_size.map(u64::try_from).transpose();
    let size =
        size.map_err(|_| s3_error!(InvalidRequest, "x-amz-mp-object-size must not be negative"))?;
    let kind = input.checksum_type;
    let mut write =
        WriteConditions::of(&backend.context, &Method::PUT, &blob.to_string(), &headers)?;
    let parts = fingerprint(&wanted);
    write.request = Some(RequestKey::of(&[
        b"s3 upload",
        input.upload_id.as_bytes(),
        parts.as_bytes(),
    ]));
    let completion = CompletionRequest {
        backend: backend.clone(),
        blob,
        place,
        write,
        headers,
        wanted,
        parts,
        size,
        kind,
    };
    let done = task::detach(completion.run()).result().await;
    let CompletedObject { tag, checksum } =
        done.unwrap_or_else(|| Err(s3_error!(InternalError, "see the server's log")))?;
    let checksum_type = checksum.checksum_type.clone();
    Ok(S3Response::new(with_checksums!(
        checksum,
        CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: convert::e_tag(tag.as_ref()),
            checksum_type,
            server_side_encryption: backend.encryption(),
            ..CompleteMultipartUploadOutput::default()
        }
    )))
}

/// A listed part.
#[derive(Clone, Debug)]
struct WantedPart {
    number: i32,
    tag: ETag,
    checksum: Checksum,
}

/// The listed parts, in the order of their numbers.
type ListedParts = Vec<WantedPart>;

/// Checks the list of parts in a request.
fn wanted(parts: Vec<CompletedPart>) -> S3Result<ListedParts> {
    let malformed = || {
        s3_error!(
            MalformedXML,
            "a list has 1 to {MAX_PARTS} parts, each with a number and an ETag"
        )
    };
    let part = |part: CompletedPart| {
        let checksum = Checksum {
            checksum_crc32: part.checksum_crc32,
            checksum_crc32c: part.checksum_crc32c,
            checksum_crc64nvme: part.checksum_crc64nvme,
            checksum_sha1: part.checksum_sha1,
            checksum_sha256: part.checksum_sha256,
            checksum_type: None,
        };
        Some(WantedPart {
            number: part.part_number?,
            tag: part.e_tag?,
            checksum,
        })
    };
    let wanted = parts
        .into_iter()
        .map(part)
        .collect::<Option<ListedParts>>()
        .ok_or_else(malformed)?;
    if wanted.is_empty() || wanted.len() > usize::from(MAX_PARTS) {
        return Err(malformed());
    }
    if !wanted.is_sorted_by(|a, b| a.number < b.number) {
        return Err(s3_error!(
            InvalidPartOrder,
            "the parts must be in the order of their numbers"
        ));
    }
    Ok(wanted)
}

/// Returns a hash of a list of parts.
fn fingerprint(wanted: &ListedParts) -> String {
    let lines = wanted
        .iter()
        .map(|part| format!("{} {}\n", part.number, part.tag.value()));
    STANDARD.encode(ContentHash::of(lines.collect::<String>().as_bytes()).as_bytes())
}

/// The object of a completed upload.
#[derive(Debug)]
struct CompletedObject {
    tag: Option<EntityTag>,
    checksum: Checksum,
}

/// A request to complete an upload.
struct CompletionRequest {
    backend: Backend,
    blob: BlobPath,
    place: UploadLocation,
    write: WriteConditions,
    headers: HeaderMap,
    wanted: ListedParts,
    /// The hash of the list.
    parts: String,
    /// The client's length of the object.
    size: Option<u64>,
    /// The client's kind of checksum.
    kind: Option<ChecksumType>,
}

impl CompletionRequest {
    /// Claims the upload, writes the object, and removes the parts.
    async fn run(self) -> S3Result<CompletedObject> {
        let store = &*self.backend.context.store;
        let (found, stored) = self
            .place
            .find_with_parts(store, &self.blob.name.to_string(), 0, usize::MAX)
            .await?;
        let LoadedUpload { upload, tag } = found;
        let algorithm = upload.checksum.algorithm;
        match &upload.state {
            UploadState::Done {
                parts,
                tag,
                checksum,
            } if *parts == self.parts => {
                let tag = tag
                    .as_ref()
                    .and_then(|tag| EntityTag::parse(tag.as_bytes()).ok());
                return Ok(CompletedObject {
                    tag,
                    checksum: algorithm.told_if_known(checksum.as_deref()),
                });
            }
            UploadState::Done { .. } => return Err(no_such_upload()),
            UploadState::Completing(since) if !is_stale(&self.backend, *since) => {
                return Err(in_progress());
            }
            UploadState::Open | UploadState::Completing(_) => {}
        }
        let source = self.select(&upload, stored)?;
        let claim = UploadClaim::new(&self.backend, &self.place, upload.clone(), tag);
        claim.renew().await.map_err(|failed| match failed.kind() {
            StoreErrorKind::PreconditionFailed { .. } | StoreErrorKind::InFlight { .. } => {
                in_progress()
            }
            _ => error::plain(failed),
        })?;
        let checksum = source.checksum.clone();
        let outcome = claim
            .kept_while(self.write(&upload, source, claim.clone()))
            .await;
        let state = match &outcome {
            Ok(tag) => {
                let (parts, tag) = (self.parts.clone(), tag.as_ref().map(ToString::to_string));
                UploadState::Done {
                    parts,
                    tag,
                    checksum: checksum.clone(),
                }
            }
            Err(_) => UploadState::Open,
        };
        match claim.end(state).await {
            Ok(()) if outcome.is_ok() => self.place.remove_parts(store).await,
            Ok(()) => {}
            Err(failed) => {
                // The claim ends by itself.
                tracing::warn!(error = %failed, "the end of an upload could not be recorded");
                let is_lost = matches!(failed.kind(), StoreErrorKind::PreconditionFailed { .. });
                if is_lost && outcome.is_err() {
                    return Err(in_progress());
                }
            }
        }
        Ok(CompletedObject {
            tag: outcome?,
            checksum: algorithm.told_if_known(checksum.as_deref()),
        })
    }

    /// Selects the listed ones of the stored parts.
    fn select(&self, upload: &Upload, stored: Vec<StoredPart>) -> S3Result<PartsSource> {
        let plan = upload.checksum;
        if self.kind.as_ref().is_some_and(|kind| *kind != plan.kind()) {
            let kind = plan.kind();
            return Err(s3_error!(
                InvalidRequest,
                "the upload began with the checksum type {}",
                kind.as_str()
            ));
        }
        let mut stored: HashMap<i32, StoredPart> =
            stored.into_iter().map(|part| (part.number, part)).collect();
        let (mut parts, mut checksums) = (Vec::new(), Vec::new());
        for WantedPart {
            number,
            tag,
            checksum,
        } in &self.wanted
        {
            let tag = conditions::entity_tag(tag)?;
            let part = stored.remove(number).filter(|part| part.is_named_by(&tag));
            let part = part.ok_or_else(|| {
                s3_error!(InvalidPart, "part {number} was not uploaded with this ETag")
            })?;
            let (kept, listed) = (
                checksum::kept_of(&part.info, plan.algorithm),
                plan.algorithm.of(checksum),
            );
            if kept.is_some() && listed.is_some_and(|listed| Some(listed) != kept.as_deref()) {
                return Err(s3_error!(
                    InvalidPart,
                    "part {number} was uploaded with another checksum"
                ));
            }
            // The store doesn't keep the checksum of each part. That of the list is compared with the bytes.
            let unverified = listed.filter(|_| kept.is_none()).map(str::to_owned);
            checksums.extend(
                kept.or_else(|| unverified.clone())
                    .map(|value| (value, part.length)),
            );
            parts.push(SourcePart { part, unverified });
        }
        let length = parts.iter().map(|source| source.part.length).sum();
        let (_, all_but_last) = parts.split_last().unzip();
        if all_but_last
            .unwrap_or_default()
            .iter()
            .any(|source: &SourcePart| source.part.length < MIN_PART)
        {
            return Err(s3_error!(
                EntityTooSmall,
                "all parts but the last must have at least {MIN_PART} bytes"
            ));
        }
        if self.size.is_some_and(|size| size != length) {
            return Err(s3_error!(
                InvalidRequest,
                "the parts have {length} bytes, which is not x-amz-mp-object-size"
            ));
        }
        let are_known = checksums.len() == parts.len();
        let checksum = if are_known {
            plan.combine(&checksums)
        } else {
            None
        };
        let name = plan.algorithm.field();
        if let (Some(known), Some(given)) = (&checksum, self.headers.get(&name))
            && plan.is_composite
            && given.as_bytes().contains(&b'-')
            && known.as_bytes() != given.as_bytes()
        {
            return Err(s3_error!(
                BadDigest,
                "{name} doesn't match the parts: send them again"
            ));
        }
        Ok(PartsSource {
            parts,
            length,
            algorithm: plan.algorithm,
            checksum,
        })
    }

    /// Writes the object.
    async fn write(
        &self,
        upload: &Upload,
        source: PartsSource,
        claim: UploadClaim,
    ) -> S3Result<Option<EntityTag>> {
        let PartsSource {
            parts,
            length,
            algorithm,
            checksum,
        } = source;
        let parts = parts.into_iter();
        let reader = PartsReader {
            claim,
            algorithm,
            parts,
            current: None,
        };
        let bytes = Body::new(StreamBody::new(stream::try_unfold(
            reader,
            PartsReader::next,
        )));
        let given = whole(&self.headers);
        let (bytes, outcome) = upload_body::verified(bytes, &given, None, None);
        let known = checksum
            .as_deref()
            .and_then(|value| checksum::field(algorithm, value));
        // A checksum of the parts takes the place of one of the bytes.
        let late_checksum = if known.is_none() {
            outcome.kept()
        } else {
            LateChecksum::default()
        };
        let headers = BlobHeaders {
            checksum: known.or_else(|| upload_body::announced(&given, None)),
            ..upload.headers()?
        };
        let put = Put {
            headers,
            late_checksum,
            length: Some(length),
            ..Put::new(bytes)
        };
        let explain = |failed: &StoreError| outcome.explain(failed, self.write.is_conditional());
        let written = objects::store(&self.backend, &self.blob, &self.write, put, explain).await?;
        Ok(written.tag)
    }
}

/// Returns the checksums of the whole object in a request, which its bytes must have.
fn whole(headers: &HeaderMap) -> HeaderMap {
    let is_whole = |value: &http::HeaderValue| !value.as_bytes().contains(&b'-');
    let is_composite = headers
        .get("x-amz-checksum-type")
        .is_some_and(|kind| kind.as_bytes() == b"COMPOSITE");
    let given = headers
        .iter()
        .filter(|(name, value)| name.as_str().starts_with(CHECKSUM) && is_whole(value));
    given
        .filter(|_| !is_composite)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// An object's parts.
struct PartsSource {
    parts: Vec<SourcePart>,
    /// The object's length.
    length: u64,
    algorithm: DigestAlgorithm,
    /// The object's checksum, if the parts' tell it.
    checksum: Option<String>,
}

/// A part to read.
struct SourcePart {
    part: StoredPart,
    /// The checksum that the part must have according to the client.
    unverified: Option<String>,
}

/// Reads the parts. It ends with an error unless the upload is still claimed by this request, and the bucket is the one for which
/// the parts arrived: the store has looked up the bucket before reading the body, so it can't write to another one.
struct PartsReader {
    claim: UploadClaim,
    algorithm: DigestAlgorithm,
    /// The parts that aren't read yet.
    parts: std::vec::IntoIter<SourcePart>,
    current: Option<(BlobBody, Option<PartCheck>)>,
}

/// A comparison of the bytes of a part with its checksum.
struct PartCheck {
    number: i32,
    hasher: ChecksumHasher,
    expected: String,
}

impl PartsReader {
    /// Reads the next frame.
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        loop {
            if let Some((body, check)) = &mut self.current {
                if let Some(frame) = body.frame().await.transpose()? {
                    if let (Some(check), Some(data)) = (check, frame.data_ref()) {
                        check.hasher.update(data);
                    }
                    return Ok(Some((frame, self)));
                }
                if let Some((_, Some(check))) = self.current.take() {
                    check.end(self.algorithm)?;
                }
            }
            let store = Arc::clone(&self.claim.backend.context.store);
            let Some(SourcePart { part, unverified }) = self.parts.next() else {
                let is_current =
                    self.claim.is_held().await? && self.claim.place.has_bucket(&*store).await?;
                return if is_current {
                    Ok(None)
                } else {
                    Err("the bucket or the upload was replaced or removed".into())
                };
            };
            let opened = store
                .open(&part.path, Reading::WHOLE.without_lease())
                .await?;
            let Some(mut opened) = opened.filter(|opened| part.is_still(&opened.info)) else {
                let error = s3_error!(InvalidPart, "part {} was replaced or removed", part.number);
                return Err(BodyRefusal::new(&error).into());
            };
            let check =
                unverified.map(|expected| PartCheck::new(self.algorithm, part.number, expected));
            self.current = Some((opened.source.read(None).await?, check));
        }
    }
}

impl PartCheck {
    fn new(algorithm: DigestAlgorithm, number: i32, expected: String) -> Self {
        let mut hasher = ChecksumHasher::default();
        algorithm.enable(&mut hasher);
        Self {
            number,
            hasher,
            expected,
        }
    }

    /// Compares the checksums after the last byte.
    fn end(self, algorithm: DigestAlgorithm) -> Result<(), BodyRefusal> {
        if algorithm.of(&self.hasher.finalize()) == Some(&*self.expected) {
            return Ok(());
        }
        let error = s3_error!(
            InvalidPart,
            "part {} does not have the checksum in the list",
            self.number
        );
        Err(BodyRefusal::new(&error))
    }
}

#[cfg(test)]
mod tests;
