//! Writing objects on the condition that they are unchanged.

use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Method};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::records::{nonce, of_driver};
use ifmatch_blob::store::{MissingContainer, Put, RequestKey, StoreError, StoreErrorKind, Written};
use ifmatch_core::EntityTag;
use ifmatch_core::command::Content;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Variant};
use ifmatch_register::Key;
use object_store::{Error, GetOptions, PutMode, PutOptions, PutPayload, PutResult};

use crate::attributes::{StoredVersion, WriteStamp, tag};
use crate::container::ContainerLookup;
use crate::container_state::{ContainerMembers, LiveContainer};
use crate::direct::DirectBody;
use crate::failure::{self, WriteFailure, contended, lost};
use crate::permit::{
    GRACE, GuardedChange, GuardedOutcome, INTERVAL, LateWriteGuard, PAUSE, TRIES, check, key,
};
use crate::probe::ConditionSupport;
use crate::receive::{BodyBytes, ReceivedBody};
use crate::store_state::{KeptData, StoreState, in_a_task};
use crate::upload::DeclaredBody;
use crate::write_job::WriteJob;

/// The version that a write is derived from, if any.
#[derive(Debug, Default)]
pub(super) struct WriteBasis {
    pub(super) tag: Option<EntityTag>,
    /// The hash of its bytes, if the write keeps them. The body of the write is then not read.
    pub(super) kept: Option<ContentHash>,
}

/// An attempt at a write.
#[derive(Debug)]
struct Attempt {
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
        self.refuse_unkept(&put.headers)?;
        let (location, key) = (self.location(blob)?, key(blob)?);
        let (incarnation, members) = self.enter_for_put(&blob.container, put.container).await?;
        let before = self.look(&location, members).await?;
        let declared = DeclaredBody::of(&put);
        let hex_of = |request: &RequestKey| hex::encode(request.request(None).as_bytes());
        let request = put.request.as_ref().map(hex_of);
        let mut job = WriteJob {
            blob: blob.clone(),
            location,
            preconditions: put.preconditions,
            lease: put.lease,
            missing: put.container,
            based_on: basis.tag,
            headers: put.headers,
            keeps_type: put.keeps_type,
            stamp: WriteStamp {
                incarnation,
                ..WriteStamp::new(format!("{:016x}", nonce()?), declared.digest(), request)
            },
        };
        let seen = match &before {
            Some(current) if job.is_request_of(current) => None,
            Some(current) => Some(self.check_replacement(&job, &key, current).await?),
            None => Some(self.check_creation(&job, &key, members).await?),
        };
        self.must_cover(&job.preconditions, declared.long().is_some())?;
        let body = if let Some(hash) = basis.kept {
            job.stamp.hash = Some(hash);
            let bytes = BodyBytes::Copied;
            ReceivedBody { bytes, hash }
        } else {
            let (body, md5) = declared.md5(put.md5, &job.headers).watch(put.body);
            let received = self.receive(&mut job, body, &declared).await?;
            self.must_cover(&job.preconditions, !received.is_conditional())?;
            md5.settle(&mut job.headers)?;
            put.late_checksum.settle(&mut job.headers);
            received
        };
        let this = Arc::clone(self);
        in_a_task(async move { this.write_guarded(job, body, seen).await }).await
    }

    /// Checks the lease and the conditions of a write that replaces a blob, and returns the blob's record.
    async fn check_replacement(
        &self,
        job: &WriteJob,
        key: &Key,
        current: &StoredVersion,
    ) -> Result<Record, StoreError> {
        let conditions = check(&Method::PUT, &job.preconditions, Some(current));
        let record = self.start(key, job.lease, conditions.is_ok()).await?;
        job.check_request(Some(current))?;
        Ok(record)
    }

    /// Checks the lease and the conditions of a write that creates a blob, and returns the record of the absent blob.
    async fn check_creation(
        self: &Arc<Self>,
        job: &WriteJob,
        key: &Key,
        members: ContainerMembers,
    ) -> Result<Record, StoreError> {
        let record = match self.recent_records.get(key) {
            Some(record) => record,
            None => self.driver.load(key).await.map_err(of_driver)?,
        };
        let ended = self.end_lease_of_absent(&job.blob, &job.location, members, record);
        let record = ended.await?;
        record.check_lease(job.lease, self.driver.now())?;
        job.check_request(None)?;
        Ok(record)
    }

    /// Writes a received body under a permit. A retry waits for its turn even if the conditions are false by now: its
    /// first attempt answers it.
    async fn write_guarded(
        &self,
        job: WriteJob,
        mut body: ReceivedBody,
        seen: Option<Record>,
    ) -> Result<Written, StoreError> {
        let is_covered = body.is_conditional() && self.capability.is_native() && !job.is_leased();
        let change = GuardedChange {
            method: &Method::PUT,
            preconditions: match &job.stamp.request {
                None => &job.preconditions,
                Some(_) => &Preconditions::NONE,
            },
            lease: job.lease,
            cover: if is_covered {
                LateWriteGuard::Store
            } else {
                LateWriteGuard::Permit
            },
        };
        let work = Box::pin(self.write(&job, &mut body));
        self.guarded(&job.blob, change, seen, work).await
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
        let incarnation = (self.keeps != KeptData::Nothing).then_some(home.incarnation);
        Ok((incarnation, home.members()))
    }

    async fn write(&self, job: &WriteJob, body: &mut ReceivedBody) -> GuardedOutcome<Written> {
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
            let answered = |current| job.answered_by(current, body.hash, created);
            if let Some(written) = current.and_then(answered) {
                return done(written);
            }
            if let Err(error) = job.check(current) {
                return GuardedOutcome::Refused(error);
            }
            if tries == TRIES {
                let why = if current.is_none() { taken } else { contended };
                return GuardedOutcome::Refused(too_soon.unwrap_or_else(why));
            }
            let container = &job.blob.container;
            let entered = self.enter(container, found, job.missing, job.stamp.incarnation);
            let home = match entered.await {
                Ok(home) => home,
                Err(error) => return GuardedOutcome::Refused(error),
            };
            self.outlast(there.as_ref()).await;
            created = current.is_none();
            let attempt = Attempt {
                stamp: self.stamp(job, body, there.as_ref(), home),
                mode: self.mode(there.as_ref()),
                created,
            };
            match self.send(job, &attempt, body).await {
                Ok(result) => return done(self.written(job, &attempt, body.hash, &result)),
                Err(WriteFailure::Changed) => too_soon = None,
                Err(WriteFailure::TooSoon(error)) => {
                    too_soon = Some(error);
                    self.driver.clock().sleep(INTERVAL).await;
                }
                Err(WriteFailure::Definite(error)) => return GuardedOutcome::Refused(error),
                Err(WriteFailure::Unknown(error)) => {
                    let grace = self.grace(job, &attempt, body);
                    return self.find_out(job, &attempt, body.hash, grace, error).await;
                }
            }
        }
        GuardedOutcome::Refused(contended())
    }

    /// Looks up the container and the object. An object of an earlier container, which isn't a blob, is also found.
    async fn survey(
        &self,
        job: &WriteJob,
    ) -> Result<(ContainerLookup, Option<StoredVersion>), StoreError> {
        let found = self.find_for_write(&job.blob.container).await?;
        let there = self.look(&job.location, ContainerMembers::ALL).await?;
        Ok((found, there))
    }

    /// Sends the write on the condition that the object is unchanged.
    async fn send(
        &self,
        job: &WriteJob,
        attempt: &Attempt,
        body: &mut ReceivedBody,
    ) -> Result<PutResult, WriteFailure> {
        // The condition of a creation doesn't cover its container: the gateway of another register wouldn't take the
        // object for a blob.
        let is_covered =
            body.is_conditional() && matches!(attempt.mode, PutMode::Update(_)) && !attempt.created;
        if !is_covered {
            self.check_owner().await.map_err(WriteFailure::Definite)?;
        }
        let (payload, extensions) = match &mut body.bytes {
            BodyBytes::Whole(payload) => (payload.clone(), Extensions::default()),
            BodyBytes::Copied => self.copied(job, attempt).await?,
            BodyBytes::Parts(parts) => return parts.complete().await.map_err(failure::of_write),
        };
        let attributes = self.attributes(&job.headers, &attempt.stamp, attempt.created);
        let options = PutOptions {
            mode: attempt.mode.clone(),
            attributes,
            extensions,
            ..PutOptions::default()
        };
        let objects = &self.backing.objects;
        let sent = objects.put_opts(&job.location, payload, options).await;
        sent.map_err(failure::of_write)
    }

    /// Reads the object that is replaced: as a body of the platform, in the extensions, if the store has one.
    async fn copied(
        &self,
        job: &WriteJob,
        attempt: &Attempt,
    ) -> Result<(PutPayload, Extensions), WriteFailure> {
        let version = match &attempt.mode {
            PutMode::Update(version) => version.e_tag.clone(),
            PutMode::Create | PutMode::Overwrite => None,
        };
        let unread = |error| match error {
            Error::NotFound { .. } | Error::Precondition { .. } => WriteFailure::Changed,
            error => WriteFailure::Definite(failure::of_read(error)),
        };
        let options = GetOptions::new().with_if_match(version);
        let objects = &self.backing.objects;
        let found = objects.get_opts(&job.location, options).await;
        let object = found.map_err(unread)?;
        let mut extensions = Extensions::default();
        let payload = match object.extensions.get::<DirectBody>() {
            Some(direct) => {
                extensions.insert(direct.clone());
                PutPayload::new()
            }
            None => object.bytes().await.map_err(unread)?.into(),
        };
        Ok((payload, extensions))
    }

    /// Returns the stamp of a write that replaces this object. For a multipart upload, the stamp is already at the
    /// store.
    fn stamp(
        &self,
        job: &WriteJob,
        body: &ReceivedBody,
        there: Option<&StoredVersion>,
        home: LiveContainer,
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

    /// Returns the response to a write that the store has carried out.
    fn written(
        &self,
        job: &WriteJob,
        attempt: &Attempt,
        hash: ContentHash,
        result: &PutResult,
    ) -> Written {
        let write = self.capability.metadata.then(|| attempt.stamp.write());
        Written {
            tag: tag(result.e_tag.as_deref(), write.as_deref()),
            last_modified: self.driver.clock().wall().last_modified(),
            hash: Some(hash),
            md5: job.headers.content_md5,
            generation: attempt
                .stamp
                .generation
                .filter(|_| self.capability.metadata),
            created: attempt.created,
            is_replay: false,
        }
    }

    /// Checks if a write with a lost response took effect.
    async fn find_out(
        &self,
        job: &WriteJob,
        attempt: &Attempt,
        hash: ContentHash,
        grace: Duration,
        error: StoreError,
    ) -> GuardedOutcome<Written> {
        let found = self.look(&job.location, ContainerMembers::ALL).await;
        let answered = |current| job.answered_by(&current, hash, attempt.created);
        match found.ok().flatten().and_then(answered) {
            Some(written) => done(written),
            None => GuardedOutcome::Unknown(error, grace),
        }
    }

    /// Returns how long other writers must wait after a write with a lost response.
    ///
    /// The time is zero if the write is conditional on a tag that no later version has: the write fails once another
    /// has succeeded. It isn't zero in three cases: a deletion makes "absent" true again, completing a multipart
    /// upload is unconditional, and a lease must block writes begun by earlier holders.
    fn grace(&self, job: &WriteJob, attempt: &Attempt, body: &ReceivedBody) -> Duration {
        let is_update = body.is_conditional() && matches!(attempt.mode, PutMode::Update(_));
        if is_update && !job.is_leased() && self.capability.unique_tags {
            Duration::ZERO
        } else {
            GRACE
        }
    }
}

fn done(written: Written) -> GuardedOutcome<Written> {
    let content = match &written.tag {
        Some(tag) => Content::Tagged {
            variant: Variant::only(),
            tag: tag.clone(),
        },
        None => Content::Unknown,
    };
    GuardedOutcome::Done(written, content)
}

/// There is nothing to read under this name, and nothing can be written there.
fn taken() -> StoreError {
    let why = "the name is that of a folder, which contains other blobs";
    StoreError::new(StoreErrorKind::Unsupported, why)
}
