//! Writing and deleting objects on the condition that they are unchanged.

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Method};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{nonce, of_driver};
use ifmatch_blob::store::{
    Delete, MissingContainer, Put, StoreError, StoreErrorKind, Upload, Written,
};
use ifmatch_core::EntityTag;
use ifmatch_core::command::Content;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use ifmatch_runtime::task::detach;
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use super::attributes::{StoredVersion, WriteStamp, tag};
use super::container::FoundContainer;
use super::container::state::{ContainerMembers, RegisteredContainer};
use super::direct::{BodyOffer, DirectBody, DirectUpload};
use super::failure::{self, WriteFailure, lost};
use super::permit::{GRACE, GuardedChange, GuardedOutcome, LateWriteGuard, check, content, key};
use super::probe::ConditionSupport;
use super::shared::{KeptData, StoreState};
use super::upload::Multipart;
use super::upload::{BodySpool, DeclaredBody};

/// Maximum number of attempts while other programs keep changing the object.
const TRIES: u32 = 8;
/// Pause before another attempt, multiplied by the number of attempts so far.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after the store rejected a write as too early: R2 accepts one write per second and object.
const INTERVAL: Duration = Duration::from_secs(1);

/// A write with a complete body.
#[derive(Debug)]
struct WriteJob {
    blob: BlobPath,
    location: Path,
    preconditions: Preconditions,
    lease: LeaseUse,
    /// Behaviour if the container doesn't exist.
    missing: MissingContainer,
    /// The tag of the version that the write was derived from, if any.
    based_on: Option<EntityTag>,
    headers: BlobHeaders,
    keeps_type: bool,
    stamp: WriteStamp,
    hash: ContentHash,
}

/// The bytes of a write.
#[derive(Debug)]
enum WriteBody {
    /// Sent in one request with its condition.
    Whole(PutPayload),
    /// Those of the object that is replaced, read from it for each attempt.
    Copied,
    /// Already in the store as parts, to be combined.
    Parts(Multipart),
}

impl WriteBody {
    /// Returns `true` if the bytes are sent in one request with its condition.
    fn is_conditional(&self) -> bool {
        !matches!(self, Self::Parts(_))
    }
}

/// The version that a write is derived from, if any.
#[derive(Debug, Default)]
pub(super) struct WriteBasis {
    pub(super) tag: Option<EntityTag>,
    /// The hash of its bytes, if the write keeps them. The body of the write is then not read.
    pub(super) kept: Option<ContentHash>,
}

/// An attempt at a write.
#[derive(Debug)]
struct Goal {
    stamp: WriteStamp,
    mode: PutMode,
    /// `true` if it creates the blob.
    created: bool,
}

impl StoreState {
    /// Writes an object.
    ///
    /// Evaluates the conditions before the body is received, and again under the permit. Once the body is complete, the
    /// write continues in a separate task, so a client that disconnects doesn't leave a permit behind.
    pub(super) async fn put(
        this: &Arc<Self>,
        blob: &BlobPath,
        put: Put,
    ) -> Result<Written, StoreError> {
        Box::pin(this.put_based(blob, put, WriteBasis::default())).await
    }

    /// Writes an object derived from a version.
    pub(super) async fn put_based(
        self: &Arc<Self>,
        blob: &BlobPath,
        put: Put,
        basis: WriteBasis,
    ) -> Result<Written, StoreError> {
        let this = self;
        this.refuse_unkept(&put.headers)?;
        let (location, key) = (this.location(blob)?, key(blob)?);
        let request = put
            .request
            .as_ref()
            .map(|key| hex::encode(key.request(None).as_bytes()));
        let (incarnation, members) = this.enter_for_put(&blob.container, put.container).await?;
        let before = this.look(&location, members).await?;
        let mut seen = None;
        if !before
            .as_ref()
            .is_some_and(|current| is_from(current, request.as_deref()))
        {
            let record = if before.is_none() {
                let record = match this.recent_records.get(&key) {
                    Some(record) => record,
                    None => this.driver.load(&key).await.map_err(of_driver)?,
                };
                let record = this
                    .end_lease_of_absent(blob, &location, members, record)
                    .await?;
                record.check_lease(put.lease, this.driver.now())?;
                record
            } else {
                this.start(
                    &key,
                    put.lease,
                    check(&Method::PUT, &put.preconditions, before.as_ref()).is_ok(),
                )
                .await?
            };
            check(&Method::PUT, &put.preconditions, before.as_ref())?;
            check_type(put.keeps_type, &put.headers, before.as_ref())?;
            seen = Some(record);
        }
        this.must_cover(&put.preconditions, DeclaredBody::of(&put).long().is_some())?;
        let promise = DeclaredBody::of(&put);
        let nonce = format!("{:016x}", nonce()?);
        let mut stamp = WriteStamp {
            incarnation,
            ..WriteStamp::new(nonce, promise.digest(), request)
        };
        let mut headers = put.headers;
        let (body, hash) = if let Some(hash) = basis.kept {
            stamp.hash = Some(hash);
            (WriteBody::Copied, hash)
        } else {
            let (body, md5) = promise.md5(put.md5, &headers).watch(put.body);
            let taken = this
                .take_in(blob, body, &promise, &headers, &mut stamp)
                .await?;
            this.must_cover(&put.preconditions, !taken.0.is_conditional())?;
            md5.settle(&mut headers)?;
            put.late_checksum.settle(&mut headers);
            taken
        };
        let (based_on, keeps_type) = (basis.tag, put.keeps_type);
        let (blob, preconditions, lease, missing) =
            (blob.clone(), put.preconditions, put.lease, put.container);
        let job = WriteJob {
            blob,
            location,
            preconditions,
            lease,
            missing,
            based_on,
            headers,
            keeps_type,
            stamp,
            hash,
        };
        let this = Arc::clone(this);
        let is_covered =
            body.is_conditional() && this.capability.is_native() && !is_leased(job.lease);
        let cover = if is_covered {
            LateWriteGuard::Store
        } else {
            LateWriteGuard::Permit
        };
        in_a_task(async move {
            let mut body = body;
            let preconditions = if job.stamp.request.is_none() {
                &job.preconditions
            } else {
                &Preconditions::NONE
            };
            let request = GuardedChange {
                method: &Method::PUT,
                preconditions,
                lease: job.lease,
                cover,
            };
            this.guarded(
                &job.blob,
                request,
                seen,
                Box::pin(this.write(&job, &mut body)),
            )
            .await
        })
        .await
    }

    /// Refuses header fields that the store would lose.
    fn refuse_unkept(&self, headers: &BlobHeaders) -> Result<(), StoreError> {
        let what = match headers {
            _ if self.capability.metadata => return Ok(()),
            BlobHeaders {
                append: Some(_), ..
            } => "the state of an append blob",
            _ if !headers.tags.is_empty() => "tags",
            _ => return Ok(()),
        };
        let message = format!("a store without metadata cannot keep {what}");
        Err(StoreError::new(StoreErrorKind::Unsupported, message))
    }

    /// Returns the blobs of the container, and its incarnation if the write enters it before its permit.
    async fn enter_for_put(
        &self,
        container: &ContainerName,
        missing: MissingContainer,
    ) -> Result<(Option<Revision>, ContainerMembers), StoreError> {
        if missing == MissingContainer::Create {
            return Ok((None, self.container_for_write(container).await?.members()));
        }
        let found = self.find_for_write(container).await?;
        let home = self.enter(container, found, missing, None).await?;
        Ok((
            (self.keeps != KeptData::Nothing).then_some(home.incarnation),
            home.members(),
        ))
    }

    /// Receives a body: a small one as a whole, a large one in parts that are sent to the store, or directly if the
    /// store can.
    async fn take_in(
        &self,
        blob: &BlobPath,
        mut body: Upload,
        promise: &DeclaredBody,
        headers: &BlobHeaders,
        stamp: &mut WriteStamp,
    ) -> Result<(WriteBody, ContentHash), StoreError> {
        promise.check()?;
        let mut begun = None;
        if let Some(length) = promise.long().filter(|_| self.backing.takes_uploads) {
            let direct = DirectUpload::new(body, length);
            let parts = self
                .begin_parts(blob, headers, stamp, Some(direct.clone()))
                .await?;
            match direct.end() {
                BodyOffer::Arrived(hash) => {
                    return Ok((WriteBody::Parts(parts), promise.keep(length, hash)?));
                }
                BodyOffer::Left(left) => (body, begun) = (left, Some(parts)),
                BodyOffer::Lost => {
                    let why = "the store took a body and did not report the result";
                    return Err(StoreError::new(StoreErrorKind::Unavailable, why));
                }
            }
        }
        let mut spool = BodySpool::new(body, promise, self.backing.hashing);
        let mut part = spool.part().await?;
        if part.last && begun.is_none() {
            let hash = spool.finish().await?;
            stamp.hash = Some(hash);
            return Ok((WriteBody::Whole(part.payload), hash));
        }
        let mut parts = match begun {
            Some(parts) => parts,
            None => self.begin_parts(blob, headers, stamp, None).await?,
        };
        loop {
            parts.send(part.payload).await?;
            if part.last {
                break;
            }
            part = spool.part().await?;
        }
        let hash = spool.finish().await?;
        parts.flush().await?;
        Ok((WriteBody::Parts(parts), hash))
    }

    /// Begins a multipart upload. Completing it is unconditional, so the parts belong to the current container, which
    /// is created if necessary.
    async fn begin_parts(
        &self,
        blob: &BlobPath,
        headers: &BlobHeaders,
        stamp: &mut WriteStamp,
        direct: Option<DirectUpload>,
    ) -> Result<Multipart, StoreError> {
        // It isn't known yet if the request created the blob, so a retry of it can't be answered.
        stamp.request = None;
        if self.capability.metadata
            && self.keeps != KeptData::Nothing
            && stamp.incarnation.is_none()
        {
            stamp.incarnation = Some(
                self.home(&blob.container, MissingContainer::Create)
                    .await?
                    .incarnation,
            );
        }
        let attributes = self.attributes(headers, stamp, false);
        let mut options = PutMultipartOptions {
            attributes,
            ..PutMultipartOptions::default()
        };
        if let Some(direct) = direct {
            options.extensions.insert(direct);
        }
        Multipart::begin(&*self.backing.objects, &self.location(blob)?, options).await
    }

    /// Deletes an object. A deletion carries no condition, so the object is compared immediately before, under the
    /// permit.
    pub(super) async fn delete(
        this: &Arc<Self>,
        blob: &BlobPath,
        delete: Delete,
    ) -> Result<(), StoreError> {
        if delete.last_snapshot.is_some() {
            return Err(StoreError::new(
                StoreErrorKind::Unsupported,
                "no snapshots are taken in front of an object store",
            ));
        }
        let location = this.location(blob)?;
        let members = this.container_for_write(&blob.container).await?.members();
        let Some(current) = this.look(&location, members).await? else {
            return Err(this.absent(&blob.container).await);
        };
        let key = key(blob)?;
        let checked = check(&Method::DELETE, &delete.preconditions, Some(&current));
        let record = this.start(&key, delete.lease, checked.is_ok()).await?;
        checked?;
        let (this, blob) = (Arc::clone(this), blob.clone());
        let work = async move {
            let work = this.delete_current(&blob, &location, &delete.preconditions);
            let preconditions = &delete.preconditions;
            let request = GuardedChange {
                preconditions,
                lease: delete.lease,
                ..GuardedChange::DELETION
            };
            this.guarded(&blob, request, Some(record), work).await
        };
        in_a_task(work).await
    }

    /// Returns an error if nothing covers the conditions of a write: completing an upload in parts is unconditional, and without a
    /// register, no permit keeps other processes away.
    fn must_cover(&self, preconditions: &Preconditions, in_parts: bool) -> Result<(), StoreError> {
        if self.keeps != KeptData::Nothing || !in_parts || !preconditions.has_write_condition() {
            return Ok(());
        }
        let why = "without leases, a body of more than 8 MiB can't be written conditionally. Turn leases on, or send it without a condition";
        Err(StoreError::new(StoreErrorKind::Unsupported, why))
    }

    async fn delete_current(
        &self,
        blob: &BlobPath,
        location: &Path,
        preconditions: &Preconditions,
    ) -> GuardedOutcome<()> {
        for tries in 0..TRIES {
            self.driver.clock().sleep(PAUSE * tries).await;
            let ending = self.try_delete_current(blob, location, preconditions).await;
            if !matches!(&ending, GuardedOutcome::Refused(error) if matches!(error.kind(), StoreErrorKind::InFlight { .. }))
            {
                return ending;
            }
        }
        GuardedOutcome::Refused(contended())
    }

    async fn try_delete_current(
        &self,
        blob: &BlobPath,
        location: &Path,
        preconditions: &Preconditions,
    ) -> GuardedOutcome<()> {
        let current = match self.find_blob(blob, location).await {
            Ok(Some(current)) => current,
            Ok(None) => return GuardedOutcome::Refused(StoreErrorKind::NotFound.into()),
            Err(error) => return GuardedOutcome::Refused(error),
        };
        if let Err(error) = check(&Method::DELETE, preconditions, Some(&current)) {
            return GuardedOutcome::Refused(error);
        }
        self.outlast(Some(&current)).await;
        if self.keeps == KeptData::Nothing
            && self.backing.deletion.is_none()
            && preconditions.has_write_condition()
        {
            let why = "without leases, this store can't delete conditionally. Turn leases on, or delete without a condition";
            return GuardedOutcome::Refused(StoreError::new(StoreErrorKind::Unsupported, why));
        }
        self.remove_compared(location, &current).await
    }

    /// Deletes the version of an object that was found under its permit.
    pub(super) async fn remove_compared(
        &self,
        location: &Path,
        current: &StoredVersion,
    ) -> GuardedOutcome<()> {
        if let Err(error) = self.check_owner().await {
            return GuardedOutcome::Refused(error);
        }
        let mut removed = self.remove(location, current).await;
        for _ in 0..TRIES {
            if !removed.as_ref().is_err_and(failure::is_too_soon) {
                break;
            }
            self.driver.clock().sleep(INTERVAL).await;
            removed = self.remove(location, current).await;
        }
        match removed {
            Ok(()) => GuardedOutcome::Done((), Content::Absent),
            Err(error) if failure::is_absence(&error) => {
                GuardedOutcome::Refused(StoreErrorKind::NotFound.into())
            }
            Err(error) => match failure::of_write(error) {
                WriteFailure::Changed => GuardedOutcome::Refused(contended()),
                WriteFailure::TooSoon(error) | WriteFailure::Definite(error) => {
                    GuardedOutcome::Refused(error)
                }
                WriteFailure::Unknown(error) => GuardedOutcome::Unknown(error, GRACE),
            },
        }
    }

    async fn write(&self, job: &WriteJob, body: &mut WriteBody) -> GuardedOutcome<Written> {
        let mut created = false;
        let mut too_soon = None;
        for tries in 0..=TRIES {
            self.driver.clock().sleep(PAUSE * tries).await;
            let (found, there) = match self.survey(job).await {
                Ok(seen) => seen,
                Err(error) if tries == 0 => return GuardedOutcome::Refused(error),
                Err(error) => return GuardedOutcome::Unknown(lost(error), GRACE),
            };
            let current = there
                .as_ref()
                .filter(|there| found.members().contain(there));
            if let Some(written) = current.and_then(|current| job.answered_by(current, created)) {
                let content = content(&written);
                return GuardedOutcome::Done(written, content);
            }
            if let Err(error) = job.check(current) {
                return GuardedOutcome::Refused(error);
            }
            if tries == TRIES {
                let why = || {
                    if current.is_none() {
                        taken()
                    } else {
                        contended()
                    }
                };
                return GuardedOutcome::Refused(too_soon.unwrap_or_else(why));
            }
            let home = match self
                .enter(
                    &job.blob.container,
                    found,
                    job.missing,
                    job.stamp.incarnation,
                )
                .await
            {
                Ok(home) => home,
                Err(error) => return GuardedOutcome::Refused(error),
            };
            self.outlast(there.as_ref()).await;
            created = current.is_none();
            let goal = Goal {
                stamp: self.stamp(job, body, there.as_ref(), home),
                mode: self.mode(there.as_ref()),
                created,
            };
            match self.send(job, &goal, body).await {
                Ok(result) => return self.done(job, &goal, &result),
                Err(WriteFailure::Changed) => too_soon = None,
                Err(WriteFailure::TooSoon(error)) => {
                    too_soon = Some(error);
                    self.driver.clock().sleep(INTERVAL).await;
                }
                Err(WriteFailure::Definite(error)) => return GuardedOutcome::Refused(error),
                Err(WriteFailure::Unknown(error)) => {
                    let grace = self.grace(job, &goal, body);
                    return self.find_out(job, &goal, grace, error).await;
                }
            }
        }
        GuardedOutcome::Refused(contended())
    }

    /// Looks up the container and the object. An object of an earlier container, which isn't a blob, is also found.
    async fn survey(
        &self,
        job: &WriteJob,
    ) -> Result<(FoundContainer, Option<StoredVersion>), StoreError> {
        let found = self.find_for_write(&job.blob.container).await?;
        Ok((
            found,
            self.look(&job.location, ContainerMembers::ALL).await?,
        ))
    }

    /// Sends the write on the condition that the object is unchanged.
    async fn send(
        &self,
        job: &WriteJob,
        goal: &Goal,
        body: &mut WriteBody,
    ) -> Result<PutResult, WriteFailure> {
        // The condition of a creation doesn't cover its container: the gateway of another register wouldn't take the
        // object for a blob.
        let is_covered =
            body.is_conditional() && matches!(goal.mode, PutMode::Update(_)) && !goal.created;
        if !is_covered {
            self.check_owner().await.map_err(WriteFailure::Definite)?;
        }
        let (payload, extensions) = match body {
            WriteBody::Whole(payload) => (payload.clone(), Extensions::default()),
            WriteBody::Copied => self.copied(job, goal).await?,
            WriteBody::Parts(parts) => return parts.complete().await.map_err(failure::of_write),
        };
        let attributes = self.attributes(&job.headers, &goal.stamp, goal.created);
        let options = PutOptions {
            mode: goal.mode.clone(),
            attributes,
            extensions,
            ..PutOptions::default()
        };
        let sent = self
            .backing
            .objects
            .put_opts(&job.location, payload, options)
            .await;
        sent.map_err(failure::of_write)
    }

    /// Reads the object that is replaced: as a body of the platform, in the extensions, if the store has one.
    async fn copied(
        &self,
        job: &WriteJob,
        goal: &Goal,
    ) -> Result<(PutPayload, Extensions), WriteFailure> {
        let version = match &goal.mode {
            PutMode::Update(version) => version.e_tag.clone(),
            PutMode::Create | PutMode::Overwrite => None,
        };
        let unread = |error| match error {
            Error::NotFound { .. } | Error::Precondition { .. } => WriteFailure::Changed,
            error => WriteFailure::Definite(failure::of_read(error)),
        };
        let options = GetOptions::new().with_if_match(version);
        let object = self
            .backing
            .objects
            .get_opts(&job.location, options)
            .await
            .map_err(unread)?;
        match object.extensions.get::<DirectBody>() {
            Some(direct) => {
                let mut extensions = Extensions::default();
                extensions.insert(direct.clone());
                Ok((PutPayload::new(), extensions))
            }
            None => Ok((
                object.bytes().await.map_err(unread)?.into(),
                Extensions::default(),
            )),
        }
    }

    /// Returns the stamp of a write that replaces this object. For a multipart upload, the stamp is already at the
    /// store.
    fn stamp(
        &self,
        job: &WriteJob,
        body: &WriteBody,
        there: Option<&StoredVersion>,
        home: RegisteredContainer,
    ) -> WriteStamp {
        let before = there
            .and_then(|there| there.info.generation)
            .unwrap_or(Revision::NONE);
        let generation = body
            .is_conditional()
            .then(|| before.next(self.driver.now()));
        let incarnation = (self.keeps != KeptData::Nothing).then_some(home.incarnation);
        WriteStamp {
            generation,
            incarnation,
            ..job.stamp.clone()
        }
    }

    fn mode(&self, there: Option<&StoredVersion>) -> PutMode {
        match there {
            None if self.capability.create == ConditionSupport::Native => PutMode::Create,
            Some(StoredVersion { version, .. })
                if self.capability.update == ConditionSupport::Native
                    && version.e_tag.is_some() =>
            {
                PutMode::Update(version.clone())
            }
            _ => PutMode::Overwrite,
        }
    }

    fn attributes(&self, headers: &BlobHeaders, stamp: &WriteStamp, created: bool) -> Attributes {
        if self.capability.metadata {
            stamp.attributes(headers, self.backing.naming, created)
        } else {
            Attributes::default()
        }
    }

    fn done(&self, job: &WriteJob, goal: &Goal, result: &PutResult) -> GuardedOutcome<Written> {
        let write = self.capability.metadata.then(|| goal.stamp.write());
        let written = Written {
            tag: tag(result.e_tag.as_deref(), write.as_deref()),
            last_modified: self.driver.clock().wall().last_modified(),
            hash: Some(job.hash),
            md5: job.headers.content_md5,
            generation: goal.stamp.generation.filter(|_| self.capability.metadata),
            created: goal.created,
            is_replay: false,
        };
        let content = content(&written);
        GuardedOutcome::Done(written, content)
    }

    /// Checks if a write with a lost response took effect.
    async fn find_out(
        &self,
        job: &WriteJob,
        goal: &Goal,
        grace: Duration,
        error: StoreError,
    ) -> GuardedOutcome<Written> {
        let found = self
            .look(&job.location, ContainerMembers::ALL)
            .await
            .ok()
            .flatten();
        match found.and_then(|current| job.answered_by(&current, goal.created)) {
            Some(written) => {
                let content = content(&written);
                GuardedOutcome::Done(written, content)
            }
            None => GuardedOutcome::Unknown(error, grace),
        }
    }

    /// Returns how long other writers must wait after a write with a lost response.
    ///
    /// The time is zero if the write is conditional on a tag that no later version has: the write fails once another
    /// has succeeded. It isn't zero in three cases: a deletion makes "absent" true again, completing a multipart
    /// upload is unconditional, and a lease must block writes begun by earlier holders.
    fn grace(&self, job: &WriteJob, goal: &Goal, body: &WriteBody) -> Duration {
        let is_update = body.is_conditional() && matches!(goal.mode, PutMode::Update(_));
        if is_update && !is_leased(job.lease) && self.capability.unique_tags {
            Duration::ZERO
        } else {
            GRACE
        }
    }
}

impl WriteJob {
    /// Returns the response if the current object was made by this very write, or by an earlier attempt of the same
    /// request.
    fn answered_by(&self, current: &StoredVersion, created: bool) -> Option<Written> {
        let same_write = self.stamp.made(current);
        let same_request =
            is_from(current, self.stamp.request.as_deref()) && current.info.hash == Some(self.hash);
        let created = match &current.origin {
            Some(origin) if same_request => origin.created,
            _ => created,
        };
        (same_write || same_request).then(|| Written {
            tag: current.info.tag.clone(),
            last_modified: current.info.last_modified,
            hash: Some(self.hash),
            md5: current.info.headers.content_md5,
            generation: current.info.generation,
            created,
            is_replay: !same_write,
        })
    }
}

impl WriteJob {
    /// Checks the conditions, and that the version from which the write was derived still exists.
    fn check(&self, current: Option<&StoredVersion>) -> Result<(), StoreError> {
        check(&Method::PUT, &self.preconditions, current)?;
        check_type(self.keeps_type, &self.headers, current)?;
        match &self.based_on {
            Some(tag) if current.and_then(|current| current.info.tag.as_ref()) != Some(tag) => {
                Err(contended())
            }
            _ => Ok(()),
        }
    }
}

/// Checks that a write that keeps the type of a blob has that type.
fn check_type(
    keeps_type: bool,
    headers: &BlobHeaders,
    current: Option<&StoredVersion>,
) -> Result<(), StoreError> {
    let is_other = current
        .is_some_and(|current| current.info.headers.append.is_some() != headers.append.is_some());
    if keeps_type && is_other {
        Err(StoreErrorKind::OtherType.into())
    } else {
        Ok(())
    }
}

/// Returns `true` for a write of the holder of a lease.
fn is_leased(lease: LeaseUse) -> bool {
    lease.id().is_some() || lease.token().is_some()
}

/// Returns `true` if this request made the object.
fn is_from(current: &StoredVersion, request: Option<&str>) -> bool {
    request.is_some() && current.origin.as_ref().map(|origin| &*origin.request) == request
}

/// Runs to the end even if the caller is dropped.
pub(super) async fn in_a_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let stopped = || {
        Err(StoreError::new(
            StoreErrorKind::OutcomeUnknown,
            "the request was interrupted",
        ))
    };
    detach(work).result().await.unwrap_or_else(stopped)
}

pub(super) fn contended() -> StoreError {
    StoreErrorKind::InFlight {
        retry_after: Duration::from_secs(1),
    }
    .into()
}

/// There is nothing to read under this name, and nothing can be written there.
fn taken() -> StoreError {
    let why = "the name is that of a folder, which contains other blobs";
    StoreError::new(StoreErrorKind::Unsupported, why)
}
