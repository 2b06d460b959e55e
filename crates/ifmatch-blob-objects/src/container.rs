//! Containers: top-level folders, and their records in the register.
//!
//! A container exists if the register contains it, or if there are blobs in its folder.

use http::Method;
use ifmatch_core::command::{Command, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::record::{Record, Version};
use ifmatch_register::Key;
use ifmatch_runtime::nonce;

use super::failure::refused;
use super::incarnation::{ATTEMPTS, Payload, Registered, key, texts};
use super::permit::{of_driver, of_register};
use super::shared::{Keeps, Shared};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{ContainerInfo, SetHeaders, StoreError, StoreErrorKind};

impl Shared {
    /// Returns the key of a container's record, adding the record if necessary. The container must exist.
    pub(super) async fn adopt(&self, container: &ContainerName) -> Result<Key, StoreError> {
        self.expect(container).await?;
        key(container)
    }

    pub(super) async fn create_container(
        &self,
        container: &ContainerName,
        headers: &BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        let registered = self.registered(container).await?;
        if let Registered::Deleting(until) = registered {
            return Err(self.deletion_in_progress(container, until));
        }
        if registered.exists() || self.has_blobs(container, registered.members()).await? {
            return Err(StoreErrorKind::ContainerExists.into());
        }
        let recorded = self.record_container(container, false, texts(headers)).await?;
        if !recorded.is_new {
            return Err(StoreErrorKind::ContainerExists.into());
        }
        self.info_of(&recorded.record)?.ok_or_else(|| StoreErrorKind::OutcomeUnknown.into())
    }

    pub(super) async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        if self.keeps == Keeps::Nothing {
            return Ok(Some(unknown()));
        }
        let record = self.container_record(container).await?;
        let registered = Registered::of(&record, self.driver.now())?;
        if registered.exists() {
            return self.info_of(&record);
        }
        let is_deleting = matches!(registered, Registered::Deleting(_));
        Ok((!is_deleting && self.has_blobs(container, registered.members()).await?).then(unknown))
    }

    pub(super) async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        self.must_keep_containers()?;
        let key = self.adopt(container).await?;
        // A container's lease protects it from deletion only.
        let request = set.request.map(|key| key.request(None));
        let nonce = nonce().map_err(of_register)?;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let registered = Registered::of(&record, now)?;
            if let Registered::Closing(_, until) = registered {
                return Err(self.deletion_in_progress(container, until));
            }
            let (Registered::Known(_), Some(version)) = (registered, record.state(now).version()) else {
                return Err(StoreErrorKind::ContainerNotFound.into());
            };
            let payload = Payload::of(version)?;
            let headers = set.change.of(&payload.clone().headers());
            let command = Write::new(
                &Method::PUT,
                &set.preconditions,
                payload.later(version).with_headers(&headers).content()?,
                nonce,
            )
            .with_lease(LeaseUse::Read(set.lease.id()))
            .with_based_on(Some(version.generation()))
            .with_request(request);
            let applied = self.driver.apply_in_turn(&key, &Command::Write(command)).await.map_err(of_driver)?;
            match applied.outcome {
                Outcome::Refused(Refusal::Stale) => {}
                Outcome::Written(_) | Outcome::Replayed(_) => {
                    return self.info_of(&applied.after)?.ok_or_else(|| StoreErrorKind::ContainerNotFound.into());
                }
                outcome => return Err(refused(outcome, self.driver.now()).of_container()),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    fn info_of(&self, record: &Record) -> Result<Option<ContainerInfo>, StoreError> {
        let now = self.driver.now();
        record.state(now).version().map(|version| info(record, version, now)).transpose()
    }
}

/// Returns the properties of a container from a version in its record, read at `now`.
///
/// # Errors
/// [`StoreErrorKind::Unreadable`], as for [`Payload::of`].
pub(super) fn info(record: &Record, version: &Version, now: Timestamp) -> Result<ContainerInfo, StoreError> {
    let payload = Payload::of(version)?;
    Ok(ContainerInfo {
        tag: version.tags().first().cloned(),
        last_modified: Some(version.last_modified()),
        created: Some(payload.created(version)),
        headers: payload.headers(),
        lease: record.seen_lease(now),
    })
}

/// Returns the properties of a container with blobs but without a record.
pub(super) fn unknown() -> ContainerInfo {
    let headers = BlobHeaders::default();
    ContainerInfo { tag: None, last_modified: None, headers, created: None, lease: None }
}
