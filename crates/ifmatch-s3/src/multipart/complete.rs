//! `CompleteMultipartUpload`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::lock::Mutex;
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
    Checksum, ChecksumType, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, ETag,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use super::upload::{Loaded, Part, Place, State, Upload, no_such_upload};
use super::{MAX_PARTS, Numbered};
use crate::backend::Backend;
use crate::body::{self, Refused};
use crate::checksum::{self, Algorithm, CHECKSUM, with_checksums};
use crate::conditions::{self, Write};
use crate::{convert, error, objects};

/// Minimum length of all parts but the last, in bytes.
const MIN_PART: u64 = 5 * 1024 * 1024;
/// Time after which a request that completes an upload renews its claim.
const RENEWAL: Duration = Duration::from_secs(20);
/// Seconds after which a claim that wasn't renewed counts as a crashed request's.
const STALE: i64 = 2 * 60;
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
    let size = input.mpu_object_size.map(u64::try_from).transpose();
    let size = size.map_err(|_| s3_error!(InvalidRequest, "x-amz-mp-object-size must not be negative"))?;
    let kind = input.checksum_type;
    let mut write = Write::of(&backend.context, &Method::PUT, &blob.to_string(), &headers)?;
    let parts = fingerprint(&wanted);
    write.request = Some(RequestKey::of(&[b"s3 upload", input.upload_id.as_bytes(), parts.as_bytes()]));
    let completion = Completion { backend: backend.clone(), blob, place, write, headers, wanted, parts, size, kind };
    let done = task::detach(completion.run()).result().await;
    let Done { tag, checksum } = done.unwrap_or_else(|| Err(s3_error!(InternalError, "see the server's log")))?;
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

/// Returns `true` if a request that began to complete an upload at this time, in seconds since 1970, can't be running.
pub(super) fn is_stale(backend: &Backend, since: i64) -> bool {
    now(backend).saturating_sub(since) > STALE
}

pub(super) fn in_progress() -> S3Error {
    error::retry(s3_error!(SlowDown, "another request completes this upload: try again later"), RETRY)
}

fn now(backend: &Backend) -> i64 {
    backend.context.wall().last_modified().unix()
}

/// A listed part.
#[derive(Clone, Debug)]
struct WantedPart {
    number: i32,
    tag: ETag,
    checksum: Checksum,
}

/// The listed parts, in the order of their numbers.
type Wanted = Vec<WantedPart>;

fn wanted(parts: Vec<CompletedPart>) -> S3Result<Wanted> {
    let malformed = || s3_error!(MalformedXML, "a list has 1 to {MAX_PARTS} parts, each with a number and an ETag");
    let part = |part: CompletedPart| {
        let checksum = Checksum {
            checksum_crc32: part.checksum_crc32,
            checksum_crc32c: part.checksum_crc32c,
            checksum_crc64nvme: part.checksum_crc64nvme,
            checksum_sha1: part.checksum_sha1,
            checksum_sha256: part.checksum_sha256,
            checksum_type: None,
        };
        Some(WantedPart { number: part.part_number?, tag: part.e_tag?, checksum })
    };
    let wanted = parts.into_iter().map(part).collect::<Option<Wanted>>().ok_or_else(malformed)?;
    if wanted.is_empty() || wanted.len() > usize::from(MAX_PARTS) {
        return Err(malformed());
    }
    if !wanted.is_sorted_by(|a, b| a.number < b.number) {
        return Err(s3_error!(InvalidPartOrder, "the parts must be in the order of their numbers"));
    }
    Ok(wanted)
}

/// Returns a hash of a list of parts.
fn fingerprint(wanted: &Wanted) -> String {
    let lines = wanted.iter().map(|part| format!("{} {}\n", part.number, part.tag.value()));
    STANDARD.encode(ContentHash::of(lines.collect::<String>().as_bytes()).as_bytes())
}

/// The object of a completed upload.
#[derive(Debug)]
struct Done {
    tag: Option<EntityTag>,
    checksum: Checksum,
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
    /// The client's length of the object.
    size: Option<u64>,
    /// The client's kind of checksum.
    kind: Option<ChecksumType>,
}

impl Completion {
    async fn run(self) -> S3Result<Done> {
        let store = &*self.backend.context.store;
        let (found, stored) = self.place.find_with_parts(store, &self.blob.name.to_string(), 0).await?;
        let Loaded { upload, tag } = found;
        let algorithm = upload.checksum.algorithm;
        match &upload.state {
            State::Done { parts, tag, checksum } if *parts == self.parts => {
                let tag = tag.as_ref().and_then(|tag| EntityTag::parse(tag.as_bytes()).ok());
                return Ok(Done { tag, checksum: algorithm.told_if_known(checksum.as_deref()) });
            }
            State::Done { .. } => return Err(no_such_upload()),
            State::Completing(since) if !is_stale(&self.backend, *since) => return Err(in_progress()),
            State::Open | State::Completing(_) => {}
        }
        let source = self.select(&upload, stored)?;
        let claim = Claim::new(&self.backend, &self.place, upload.clone(), tag);
        claim.renew().await.map_err(|failed| match failed.kind() {
            StoreErrorKind::PreconditionFailed { .. } | StoreErrorKind::InFlight { .. } => in_progress(),
            _ => error::plain(failed),
        })?;
        let checksum = source.checksum.clone();
        let outcome = claim.kept_while(self.write(&upload, source, claim.clone())).await;
        let state = match &outcome {
            Ok(tag) => {
                let (parts, tag) = (self.parts.clone(), tag.as_ref().map(ToString::to_string));
                State::Done { parts, tag, checksum: checksum.clone() }
            }
            Err(_) => State::Open,
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
        Ok(Done { tag: outcome?, checksum: algorithm.told_if_known(checksum.as_deref()) })
    }

    /// Selects the listed ones of the stored parts.
    fn select(&self, upload: &Upload, stored: Vec<Part>) -> S3Result<Source> {
        let plan = upload.checksum;
        if self.kind.as_ref().is_some_and(|kind| *kind != plan.kind()) {
            let kind = plan.kind();
            return Err(s3_error!(InvalidRequest, "the upload began with the checksum type {}", kind.as_str()));
        }
        let mut stored: Numbered = stored.into_iter().map(|part| (part.number, part)).collect();
        let (mut parts, mut checksums) = (Vec::new(), Vec::new());
        for WantedPart { number, tag, checksum } in &self.wanted {
            let tag = conditions::entity_tag(tag)?;
            let part = stored.remove(number).filter(|part| part.is_named_by(&tag));
            let part = part.ok_or_else(|| s3_error!(InvalidPart, "part {number} was not uploaded with this ETag"))?;
            let (kept, listed) = (checksum::kept_of(&part.info, plan.algorithm), plan.algorithm.of(checksum));
            if kept.is_some() && listed.is_some_and(|listed| Some(listed) != kept.as_deref()) {
                return Err(s3_error!(InvalidPart, "part {number} was uploaded with another checksum"));
            }
            // The store doesn't keep the checksum of each part. That of the list is compared with the bytes.
            let unverified = listed.filter(|_| kept.is_none()).map(str::to_owned);
            checksums.extend(kept.or_else(|| unverified.clone()).map(|value| (value, part.length)));
            parts.push(SourcePart { part, unverified });
        }
        let length = parts.iter().map(|source| source.part.length).sum();
        let (_, all_but_last) = parts.split_last().unzip();
        if all_but_last.unwrap_or_default().iter().any(|source: &SourcePart| source.part.length < MIN_PART) {
            return Err(s3_error!(EntityTooSmall, "all parts but the last must have at least {MIN_PART} bytes"));
        }
        if self.size.is_some_and(|size| size != length) {
            return Err(s3_error!(InvalidRequest, "the parts have {length} bytes, which is not x-amz-mp-object-size"));
        }
        let are_known = checksums.len() == parts.len();
        let checksum = if are_known { plan.combine(&checksums) } else { None };
        let name = plan.algorithm.field();
        if let (Some(known), Some(given)) = (&checksum, self.headers.get(&name))
            && plan.is_composite
            && given.as_bytes().contains(&b'-')
            && known.as_bytes() != given.as_bytes()
        {
            return Err(s3_error!(BadDigest, "{name} is not that of the parts: send them again"));
        }
        Ok(Source { parts, length, algorithm: plan.algorithm, checksum })
    }

    /// Writes the object.
    async fn write(&self, upload: &Upload, source: Source, claim: Claim) -> S3Result<Option<EntityTag>> {
        let Source { parts, length, algorithm, checksum } = source;
        let parts = parts.into_iter();
        let reader = Reader { claim, algorithm, parts, current: None };
        let bytes = Body::new(StreamBody::new(stream::try_unfold(reader, Reader::next)));
        let given = whole(&self.headers);
        let (bytes, outcome) = body::verified(bytes, &given, None, None);
        let known = checksum.as_deref().and_then(|value| checksum::field(algorithm, value));
        // A checksum of the parts takes the place of one of the bytes.
        let late_checksum = if known.is_none() { outcome.kept() } else { LateChecksum::default() };
        let headers = BlobHeaders { checksum: known.or_else(|| body::announced(&given, None)), ..upload.headers()? };
        let put = Put { headers, late_checksum, length: Some(length), ..Put::new(bytes) };
        let explain = |failed: &StoreError| outcome.explain(failed, self.write.is_conditional());
        let written = objects::store(&self.backend, &self.blob, &self.write, put, explain).await?;
        Ok(written.tag)
    }
}

/// Returns the checksums of the whole object in a request, which its bytes must have.
fn whole(headers: &HeaderMap) -> HeaderMap {
    let is_whole = |value: &http::HeaderValue| !value.as_bytes().contains(&b'-');
    let is_composite = headers.get("x-amz-checksum-type").is_some_and(|kind| kind.as_bytes() == b"COMPOSITE");
    let given = headers.iter().filter(|(name, value)| name.as_str().starts_with(CHECKSUM) && is_whole(value));
    given.filter(|_| !is_composite).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// An object's parts.
struct Source {
    parts: Vec<SourcePart>,
    /// The object's length.
    length: u64,
    algorithm: Algorithm,
    /// The object's checksum, if the parts' tell it.
    checksum: Option<String>,
}

struct SourcePart {
    part: Part,
    /// The checksum that the part must have according to the client.
    unverified: Option<String>,
}

/// The claim of a request that completes an upload. It is a mark in the upload, which the request renews.
#[derive(Clone)]
struct Claim {
    backend: Backend,
    place: Place,
    upload: Upload,
    mark: Arc<Mutex<Mark>>,
}

/// The mark of a claim.
struct Mark {
    /// The tag of the upload with the mark.
    tag: Option<EntityTag>,
    /// `true` once the request has recorded its end, which a renewal that was about to begin must not undo.
    has_ended: bool,
}

impl Claim {
    /// A claim on an upload with this tag, before it is [renewed](Self::renew) for the first time.
    fn new(backend: &Backend, place: &Place, upload: Upload, tag: Option<EntityTag>) -> Self {
        let mark = Arc::new(Mutex::new(Mark { tag, has_ended: false }));
        Self { backend: backend.clone(), place: place.clone(), upload, mark }
    }

    /// Renews the claim, unless it has ended.
    async fn renew(&self) -> Result<(), StoreError> {
        let mut mark = self.mark.lock().await;
        if mark.has_ended { Ok(()) } else { self.save(State::Completing(now(&self.backend)), &mut mark).await }
    }

    /// Ends the claim with this state of the upload, if it is still claimed.
    async fn end(&self, state: State) -> Result<(), StoreError> {
        let mut mark = self.mark.lock().await;
        mark.has_ended = true;
        self.save(state, &mut mark).await
    }

    async fn save(&self, state: State, mark: &mut Mark) -> Result<(), StoreError> {
        let upload = Upload { state, ..self.upload.clone() };
        mark.tag = self.place.save(&*self.backend.context.store, &upload, mark.tag.as_ref()).await?;
        Ok(())
    }

    /// Renews the claim while this work lasts.
    async fn kept_while<T>(&self, work: impl Future<Output = T>) -> T {
        let renewals = async {
            loop {
                self.backend.context.clock.sleep(RENEWAL).await;
                let this = self.clone();
                // A renewal that has begun goes on after the work has ended, since the tag would be unknown otherwise.
                match task::detach(async move { this.renew().await }).result().await {
                    Some(Ok(())) => {}
                    failed => tracing::warn!(?failed, "the claim on an upload could not be renewed"),
                }
            }
        };
        let (work, renewals) = (pin!(work), pin!(renewals));
        match select(work, renewals).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Returns `true` if no other request has changed the upload.
    async fn is_held(&self) -> Result<bool, StoreError> {
        let mark = self.mark.lock().await;
        Ok(self.place.load(&*self.backend.context.store).await?.is_some_and(|found| found.tag == mark.tag))
    }
}

/// Reads the parts. It ends with an error unless the upload is still claimed by this request, and the bucket is the one for which
/// the parts arrived: the store has looked up the bucket before reading the body, so it can't write to another one.
struct Reader {
    claim: Claim,
    algorithm: Algorithm,
    parts: std::vec::IntoIter<SourcePart>,
    current: Option<(BlobBody, Option<Check>)>,
}

/// A comparison of the bytes of a part with its checksum.
struct Check {
    number: i32,
    hasher: ChecksumHasher,
    expected: String,
}

impl Reader {
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
                let is_current = self.claim.is_held().await? && self.claim.place.has_bucket(&*store).await?;
                return if is_current {
                    Ok(None)
                } else {
                    Err("the bucket or the upload was replaced or removed".into())
                };
            };
            let opened = store.open(&part.path, Reading::WHOLE.without_lease()).await?;
            let Some(mut opened) = opened.filter(|opened| part.is_still(&opened.info)) else {
                let error = s3_error!(InvalidPart, "part {} was replaced or removed", part.number);
                return Err(Refused::new(&error).into());
            };
            let check = unverified.map(|expected| Check::new(self.algorithm, part.number, expected));
            self.current = Some((opened.source.read(None).await?, check));
        }
    }
}

impl Check {
    fn new(algorithm: Algorithm, number: i32, expected: String) -> Self {
        let mut hasher = ChecksumHasher::default();
        algorithm.enable(&mut hasher);
        Self { number, hasher, expected }
    }

    fn end(self, algorithm: Algorithm) -> Result<(), Refused> {
        if algorithm.of(&self.hasher.finalize()) == Some(&*self.expected) {
            return Ok(());
        }
        let error = s3_error!(InvalidPart, "part {} does not have the checksum in the list", self.number);
        Err(Refused::new(&error))
    }
}

#[cfg(test)]
mod tests {

    use http_body_util::Full;
    use ifmatch_blob::BlobService;
    use ifmatch_blob::accounts::Accounts;
    use ifmatch_blob::name::ContainerName;
    use ifmatch_blob::store::BlobStore;
    use ifmatch_blob::test_util::{Hooked, ManualClock, Step, Stop};
    use ifmatch_blob_embedded::EmbeddedStore;
    use ifmatch_register::{Driver, MemoryRegister};
    use s3s::S3ErrorCode;
    use tempfile::TempDir;

    use super::super::NewPart;
    use super::super::upload::{PARTS, UPLOADS};
    use super::*;
    use crate::checksum::Plan;
    use crate::convert::Fields;

    /// Far longer than any step takes.
    const LIMIT: Duration = Duration::from_mins(1);

    /// An upload with one part, and a stop.
    struct Setup {
        backend: Backend,
        clock: ManualClock,
        stop: Stop,
        place: Place,
        part: Part,
        _folder: TempDir,
    }

    /// The first completion stops before it reads the part.
    async fn setup() -> Setup {
        setup_with(Stop::new(|step, container| step == Step::Open && *container == *PARTS, 0)).await
    }

    async fn setup_with(stop: Stop) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::default();
        let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
        let inner: Arc<dyn BlobStore> = Arc::new(EmbeddedStore::with_driver(folder.path(), driver).await.unwrap());
        let store: Arc<dyn BlobStore> = Arc::new(Hooked { inner: Arc::clone(&inner), hook: stop.clone() });
        let service = BlobService::with_clock(Arc::clone(&store), clock.clone());
        let backend =
            Backend { context: service.context().clone(), accounts: Accounts::development(), is_encrypted: false };
        let container = ContainerName::new("docs").unwrap();
        let info = store.create_container(&container, BlobHeaders::default()).await.unwrap();
        let place = Place::new(container, &info, &"0".repeat(32));
        let (fields, checksum) = (Fields::default(), Plan::default());
        let upload = Upload { key: "a".into(), fields, checksum, initiated: 0, state: State::Open };
        place.save(&*inner, &upload, None).await.unwrap();
        let part = Put::new(Body::new(Full::new(Bytes::from("part"))));
        inner.put(&place.part(1).unwrap(), part).await.unwrap();
        let part = place.parts(&*inner, 0).await.unwrap().remove(0);
        Setup { backend, clock, stop, place, part, _folder: folder }
    }

    impl Setup {
        fn completion(&self) -> Completion {
            let tag = convert::e_tag(self.part.tag.as_ref()).unwrap();
            let wanted = vec![WantedPart { number: 1, tag, checksum: Checksum::default() }];
            let name = ifmatch_blob::name::BlobName::new("a").unwrap();
            Completion {
                backend: self.backend.clone(),
                blob: BlobPath { container: self.place.container.clone(), name },
                place: self.place.clone(),
                write: Write { preconditions: ifmatch_core::precondition::Preconditions::NONE, request: None },
                headers: HeaderMap::new(),
                parts: fingerprint(&wanted),
                wanted,
                size: None,
                kind: None,
            }
        }

        /// Begins a completion, and waits until it is about to read the part.
        async fn stopped_completion(&self) -> tokio::task::JoinHandle<S3Result<Done>> {
            let running = tokio::spawn(self.completion().run());
            let reached = tokio::time::timeout(LIMIT, self.stop.reached()).await;
            reached.expect("the completion reads the part within a minute");
            running
        }

        /// Lets a request go on, and waits for its end.
        async fn resume<T>(&self, running: tokio::task::JoinHandle<T>) -> T {
            self.stop.go_on();
            let ended = tokio::time::timeout(LIMIT, running).await;
            ended.expect("the request ends within a minute").expect("no panic")
        }

        /// Stores the part as a request that began while the upload was open.
        async fn store_part(&self, bytes: &'static str) -> S3Result<()> {
            let part = NewPart { place: &self.place, key: "a", number: 1 };
            let put = Put::new(Body::new(Full::new(Bytes::from(bytes))));
            part.store(&self.backend, put, |failed| error::of_store(failed, false)).await.map(drop)
        }

        /// Aborts the upload if it is open.
        async fn abort(&self) -> bool {
            let store = &*self.backend.context.store;
            let Some(Loaded { upload, tag }) = self.place.load(store).await.unwrap() else { return false };
            let is_open = upload.state == State::Open;
            if is_open {
                self.place.remove(store, tag.as_ref()).await.unwrap();
                self.place.remove_parts(store).await;
            }
            is_open
        }

        /// Returns the tags of the stored parts.
        async fn tags(&self) -> Vec<Option<EntityTag>> {
            let parts = self.place.parts(&*self.backend.context.store, 0).await.unwrap();
            parts.into_iter().map(|part| part.tag).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_lasts_as_long_as_its_request_works() {
        let setup = setup().await;
        let first = tokio::spawn(setup.completion().run());
        setup.stop.reached().await;
        for _ in 0..30 {
            setup.clock.advance(RENEWAL);
            // Longer than the renewal's timer, so the renewal comes first.
            tokio::time::sleep(RENEWAL + Duration::from_secs(1)).await;
            let refused = setup.completion().run().await.expect_err("the first request goes on");
            assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
        }
        setup.stop.go_on();
        let done = first.await.unwrap().expect("no other request completed the upload");
        let again = setup.completion().run().await.expect("it is complete");
        assert_eq!(again.tag, done.tag);
    }

    /// The request doesn't come to renew its claim, as if its process had stopped.
    #[tokio::test]
    async fn a_request_that_lost_its_claim_writes_nothing() {
        let setup = setup().await;
        let first = tokio::spawn(setup.completion().run());
        setup.stop.reached().await;
        setup.clock.advance(Duration::from_secs(STALE.unsigned_abs()));
        setup.completion().run().await.expect_err("it may still be running");
        setup.clock.advance(Duration::from_secs(1));
        let done = setup.completion().run().await.expect("it took over");
        setup.stop.go_on();
        let refused = first.await.unwrap().expect_err("its claim is lost");
        assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
        let store = &setup.backend.context.store;
        let opened = store.open(&setup.completion().blob, Reading::HEAD).await.unwrap().expect("the object");
        assert_eq!(opened.info.tag, done.tag);
    }

    #[tokio::test]
    async fn a_renewal_that_comes_late_does_not_undo_the_end() {
        let setup = setup().await;
        let Loaded { upload, tag } =
            setup.place.load(&*setup.backend.context.store).await.unwrap().expect("the upload");
        let claim = Claim::new(&setup.backend, &setup.place, upload, tag);
        claim.renew().await.unwrap();
        let done = State::Done { parts: String::new(), tag: None, checksum: None };
        claim.end(done.clone()).await.unwrap();
        claim.renew().await.unwrap();
        let found = setup.place.load(&*setup.backend.context.store).await.unwrap().expect("the upload");
        assert_eq!(found.upload.state, done);
    }

    /// Another part with the number of the one that the completion lists arrives late, and replaces it.
    #[tokio::test]
    async fn a_part_that_arrives_during_a_completion_stays_and_can_be_sent_again() {
        let mut setup = setup().await;
        let running = setup.stopped_completion().await;
        let refused = setup.store_part("late").await.expect_err("the upload is being completed");
        assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
        let left = setup.tags().await;
        assert!(left.len() == 1 && left[0] != setup.part.tag, "the part of the late attempt is left: {left:?}");
        let refused = setup.resume(running).await.expect_err("the listed part was replaced");
        assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
        let refused = setup.completion().run().await.expect_err("the listed part was replaced");
        assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
        setup.store_part("part").await.expect("the upload takes parts again");
        setup.part.tag = setup.tags().await.remove(0);
        setup.completion().run().await.expect("the part is listed with its new tag");
    }

    /// An earlier attempt of the part that the completion lists arrives late, before the part is read, or before the upload is
    /// completed with the tag of either answer.
    #[tokio::test]
    async fn a_part_with_the_same_bytes_takes_the_place_of_the_listed_one() {
        let setup = setup().await;
        let running = setup.stopped_completion().await;
        setup.store_part("part").await.expect_err("the upload is being completed");
        assert_ne!(setup.tags().await.first(), Some(&setup.part.tag));
        let done = setup.resume(running).await.expect("the bytes are those of the list");
        let other = setup_with(Stop::new(|_, _| false, 0)).await;
        other.store_part("part").await.expect("the upload is open");
        assert_ne!(other.tags().await.first(), Some(&other.part.tag));
        assert_eq!(
            other.completion().run().await.expect("the tag names these bytes").tag.is_some(),
            done.tag.is_some()
        );
        let replaced = setup_with(Stop::new(|_, _| false, 0)).await;
        replaced.store_part("other").await.expect("the upload is open");
        let refused = replaced.completion().run().await.expect_err("the tag names other bytes");
        assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
    }

    #[tokio::test]
    async fn a_part_that_arrives_after_the_end_of_its_upload_is_removed() {
        for is_completed in [true, false] {
            let setup = setup().await;
            if is_completed {
                let running = setup.stopped_completion().await;
                setup.resume(running).await.expect("no other request replaced the part");
            } else {
                assert!(setup.abort().await);
            }
            let refused = setup.store_part("part").await.expect_err("the upload has ended");
            assert_eq!(*refused.code(), S3ErrorCode::NoSuchUpload, "completed: {is_completed}");
            assert_eq!(setup.tags().await, [], "completed: {is_completed}");
        }
    }

    /// The request that completes the upload stops, as if its process had ended.
    #[tokio::test]
    async fn an_upload_whose_completion_ended_in_a_crash_takes_parts_again() {
        let mut setup = setup().await;
        let stopped = setup.stopped_completion().await;
        // Otherwise it would renew its claim.
        stopped.abort();
        assert!(stopped.await.expect_err("it was stopped").is_cancelled());
        setup.clock.advance(Duration::from_secs(STALE.unsigned_abs() + 1));
        setup.store_part("part").await.expect("the claim is no longer renewed");
        setup.part.tag = setup.tags().await.remove(0);
        setup.completion().run().await.expect("it took over");
    }

    /// Matches the steps between which another request may end the upload.
    fn is_of_upload(_: Step, container: &ContainerName) -> bool {
        [&*UPLOADS, &*PARTS].contains(&container)
    }

    /// Runs a request, and runs another one right before each of its steps in turn, until it has no such step.
    async fn before_each_step<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        request: impl Fn(&Setup) -> F,
        other: impl AsyncFn(&Setup, tokio::task::JoinHandle<T>),
    ) -> usize {
        for passing in 0.. {
            let setup = setup_with(Stop::new(is_of_upload, passing)).await;
            let mut running = tokio::spawn(request(&setup));
            let is_stopped = async {
                tokio::select! {
                    () = setup.stop.reached() => true,
                    _ = &mut running => false,
                }
            };
            if !tokio::time::timeout(LIMIT, is_stopped).await.expect("the request stops or ends within a minute") {
                return passing;
            }
            other(&setup, running).await;
        }
        unreachable!("a request has an end");
    }

    #[tokio::test]
    async fn one_of_two_completions_writes_and_the_other_is_told_so() {
        let other = async |setup: &Setup, running| {
            let other = setup.completion().run().await;
            let first = setup.resume(running).await;
            let again = setup.completion().run().await.expect("it is complete");
            for outcome in [other, first] {
                match outcome {
                    Ok(done) => assert_eq!(done.tag, again.tag),
                    Err(refused) => assert_eq!(*refused.code(), S3ErrorCode::SlowDown, "{refused:?}"),
                }
            }
        };
        let steps = before_each_step(|setup| setup.completion().run(), other).await;
        assert!(steps > 3, "only {steps} steps");
    }

    #[tokio::test]
    async fn a_completion_finds_an_upload_aborted_or_completes_it() {
        let other = async |setup: &Setup, running| {
            let is_aborted = setup.abort().await;
            let outcome: S3Result<Done> = setup.resume(running).await;
            assert_eq!(outcome.is_ok(), !is_aborted, "{outcome:?}");
            if let Err(refused) = outcome {
                let codes = [S3ErrorCode::NoSuchUpload, S3ErrorCode::SlowDown];
                assert!(codes.contains(refused.code()), "{refused:?}");
            }
        };
        let steps = before_each_step(|setup| setup.completion().run(), other).await;
        assert!(steps > 3, "only {steps} steps");
    }

    #[tokio::test]
    async fn an_upload_is_listed_with_all_its_parts_or_as_ended() {
        let list = |setup: &Setup| {
            let (store, place) = (Arc::clone(&setup.backend.context.store), setup.place.clone());
            async move { place.find_with_parts(&*store, "a", 0).await }
        };
        for is_completed in [true, false] {
            let other = async |setup: &Setup, running| {
                if is_completed {
                    setup.completion().run().await.expect("no other request completes the upload");
                } else {
                    assert!(setup.abort().await);
                }
                let listed: S3Result<(Loaded, Vec<Part>)> = setup.resume(running).await;
                match listed {
                    Ok((found, parts)) => assert!(parts.len() == 1 || found.upload.state != State::Open),
                    Err(refused) => assert_eq!(*refused.code(), S3ErrorCode::NoSuchUpload),
                }
            };
            assert_eq!(before_each_step(list, other).await, 2, "the listing, and the load of the upload");
        }
    }
}
