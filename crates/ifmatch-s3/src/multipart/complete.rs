//! `CompleteMultipartUpload`.

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
use ifmatch_blob::store::{BoxError, Put, Reading, RequestKey, StoreError, StoreErrorKind, Upload as Body};
use ifmatch_core::EntityTag;
use ifmatch_core::digest::ContentHash;
use ifmatch_runtime::task;
use s3s::dto::{CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, ETag};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::upload::{Loaded, Part, Place, State, Upload, no_such_upload};
use super::{MAX_PARTS, Numbered};
use crate::backend::Backend;
use crate::conditions::{self, Write};
use crate::{body, convert, error, objects};

/// Minimum length of all parts but the last, in bytes.
const MIN_PART: u64 = 5 * 1024 * 1024;
/// Seconds after which a request that completes an upload counts as ended by a crash.
const STALE: i64 = 15 * 60;
/// Seconds after which to try again while another request completes the upload.
const RETRY: u64 = 1;

/// Completes an upload. It continues if the client disconnects.
pub(crate) async fn complete(
    backend: &Backend,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let S3Request { input, credentials, headers, .. } = request;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    let place = super::place(backend, credentials.as_ref(), &input.bucket, &input.upload_id).await?;
    let wanted = wanted(input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default())?;
    let mut write = Write::of(&backend.context, &Method::PUT, &blob.to_string(), &headers)?;
    let parts = fingerprint(&wanted);
    write.request = Some(RequestKey::of(&[b"s3 upload", input.upload_id.as_bytes(), parts.as_bytes()]));
    let completion = Completion { backend: backend.clone(), blob, place, write, headers, wanted, parts };
    let done = task::detach(completion.run()).result().await;
    let tag = done.unwrap_or_else(|| Err(s3_error!(InternalError, "see the server's log")))?;
    let output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: convert::e_tag(tag.as_ref()),
        ..CompleteMultipartUploadOutput::default()
    };
    Ok(S3Response::new(output))
}

/// Returns `true` if a request that began to complete an upload at this time, in seconds since 1970, cannot be running.
pub(super) fn is_stale(backend: &Backend, since: i64) -> bool {
    now(backend).saturating_sub(since) > STALE
}

pub(super) fn in_progress() -> S3Error {
    error::retry(s3_error!(SlowDown, "another request completes this upload: try again later"), RETRY)
}

fn now(backend: &Backend) -> i64 {
    backend.context.wall().last_modified().unix()
}

/// The listed parts: their numbers and tags, in order.
type Wanted = Vec<(i32, ETag)>;

fn wanted(parts: Vec<CompletedPart>) -> S3Result<Wanted> {
    let malformed = || s3_error!(MalformedXML, "a list has 1 to {MAX_PARTS} parts, each with a number and an ETag");
    let part = |part: CompletedPart| Some((part.part_number?, part.e_tag?));
    let wanted = parts.into_iter().map(part).collect::<Option<Wanted>>().ok_or_else(malformed)?;
    if wanted.is_empty() || wanted.len() > usize::try_from(MAX_PARTS).unwrap_or_default() {
        return Err(malformed());
    }
    if !wanted.is_sorted_by(|(a, _), (b, _)| a < b) {
        return Err(s3_error!(InvalidPartOrder, "the parts must be in the order of their numbers"));
    }
    Ok(wanted)
}

/// Returns a hash of a list of parts.
fn fingerprint(wanted: &Wanted) -> String {
    let lines = wanted.iter().map(|(number, tag)| format!("{number} {}\n", tag.value()));
    STANDARD.encode(ContentHash::of(lines.collect::<String>().as_bytes()).as_bytes())
}

/// A request to complete an upload.
struct Completion {
    backend: Backend,
    blob: BlobPath,
    place: Place,
    write: Write,
    headers: HeaderMap,
    wanted: Wanted,
    /// The hash of the list.
    parts: String,
}

impl Completion {
    /// Returns the tag of the object.
    async fn run(self) -> S3Result<Option<EntityTag>> {
        let store = &*self.backend.context.store;
        let Loaded { upload, tag } = self.place.find(store, &self.blob.name.to_string()).await?;
        match &upload.state {
            State::Done { parts, tag } if *parts == self.parts => {
                return Ok(tag.as_ref().and_then(|tag| EntityTag::parse(tag.as_bytes()).ok()));
            }
            State::Done { .. } => return Err(no_such_upload()),
            State::Completing(since) if !is_stale(&self.backend, *since) => return Err(in_progress()),
            State::Open | State::Completing(_) => {}
        }
        let parts = self.find().await?;
        let claim = Upload { state: State::Completing(now(&self.backend)), ..upload.clone() };
        let claimed = self.place.save(store, &claim, tag.as_ref()).await.map_err(|failed| match failed.kind() {
            StoreErrorKind::PreconditionFailed { .. } | StoreErrorKind::InFlight { .. } => in_progress(),
            _ => error::plain(&failed),
        })?;
        let outcome = self.write(&upload, parts, claimed.clone()).await;
        let state = match &outcome {
            Ok(tag) => State::Done { parts: self.parts.clone(), tag: tag.as_ref().map(ToString::to_string) },
            Err(_) => State::Open,
        };
        // The claim ends by itself if this fails.
        if let Err(error) = self.place.save(store, &Upload { state, ..upload }, claimed.as_ref()).await {
            tracing::warn!(%error, "the end of an upload could not be recorded");
        } else if outcome.is_ok() {
            self.place.remove_parts(store).await;
        }
        outcome
    }

    /// Finds the listed parts.
    async fn find(&self) -> S3Result<Vec<Part>> {
        let stored = self.place.parts(&*self.backend.context.store, 0).await.map_err(|failed| error::plain(&failed))?;
        let mut stored: Numbered = stored.into_iter().map(|part| (part.number, part)).collect();
        let mut parts = Vec::new();
        for (number, tag) in &self.wanted {
            let tag = conditions::entity_tag(tag)?;
            let part =
                stored.remove(number).filter(|part| part.tag.as_ref().is_some_and(|found| found.strong_eq(&tag)));
            parts.push(part.ok_or_else(|| s3_error!(InvalidPart, "part {number} was not uploaded with this ETag"))?);
        }
        let (_, all_but_last) = parts.split_last().unzip();
        if all_but_last.unwrap_or_default().iter().any(|part| part.length < MIN_PART) {
            return Err(s3_error!(EntityTooSmall, "all parts but the last must have at least {MIN_PART} bytes"));
        }
        Ok(parts)
    }

    /// Writes the object.
    async fn write(&self, upload: &Upload, parts: Vec<Part>, claim: Option<EntityTag>) -> S3Result<Option<EntityTag>> {
        let length = parts.iter().map(|part| part.length).sum();
        let parts = parts.into_iter();
        let reader = Reader { backend: self.backend.clone(), place: self.place.clone(), claim, parts, body: None };
        let bytes = Body::new(StreamBody::new(stream::try_unfold(reader, Reader::next)));
        let given = whole(&self.headers);
        let (bytes, outcome) = body::verified(bytes, &given, None);
        let headers = BlobHeaders { checksum: body::announced(&given), ..upload.headers()? };
        let put = Put { headers, late_checksum: outcome.kept(), length: Some(length), ..Put::new(bytes) };
        let explain = |failed: &StoreError| outcome.explain(failed, self.write.is_conditional());
        let written = objects::store(&self.backend, &self.blob, &self.write, put, explain).await?;
        Ok(written.tag)
    }
}

/// Returns the checksums of the whole object in a request. Others are those of its parts, which were verified as they arrived.
fn whole(headers: &HeaderMap) -> HeaderMap {
    let is_whole = |value: &http::HeaderValue| !value.as_bytes().contains(&b'-');
    let is_composite = headers.get("x-amz-checksum-type").is_some_and(|kind| kind.as_bytes() == b"COMPOSITE");
    let given = headers.iter().filter(|(name, value)| name.as_str().starts_with("x-amz-checksum-") && is_whole(value));
    given.filter(|_| !is_composite).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Reads the parts. It ends with an error unless the upload is still claimed by this request, and the bucket is the one for which
/// the parts arrived: the store has looked up the bucket before reading the body, so it cannot write to another one.
struct Reader {
    backend: Backend,
    place: Place,
    claim: Option<EntityTag>,
    parts: std::vec::IntoIter<Part>,
    body: Option<BlobBody>,
}

impl Reader {
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        loop {
            if let Some(body) = &mut self.body {
                match body.frame().await {
                    Some(frame) => return Ok(Some((frame?, self))),
                    None => self.body = None,
                }
            }
            let store = Arc::clone(&self.backend.context.store);
            let Some(part) = self.parts.next() else {
                let is_claimed = self.place.load(&*store).await?.is_some_and(|found| found.tag == self.claim);
                let is_current = is_claimed && self.place.has_bucket(&*store).await?;
                return if is_current {
                    Ok(None)
                } else {
                    Err("the bucket or the upload was replaced or removed".into())
                };
            };
            let opened = store.open(&part.path, Reading::WHOLE.without_lease()).await?;
            let Some(mut opened) = opened.filter(|opened| opened.info.tag == part.tag) else {
                return Err(format!("part {} was replaced or removed", part.number).into());
            };
            self.body = Some(opened.source.read(None).await?);
        }
    }
}
