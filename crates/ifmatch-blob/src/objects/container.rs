//! Containers: the folders at the top, and what the register knows of them.
//!
//! A container exists if the register says so, or if there are objects in its folder. Whoever writes a blob looks at its
//! container's record after the blob's permit was granted; whoever deletes a container makes that record a write in
//! flight first, and then waits for the blobs' permits. So no write slips through a deletion.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Authority, Command, Content, Outcome, Refusal, Transition, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Version};
use ifmatch_store::register::Swap;
use ifmatch_store::{Key, Register, nonce};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::failure::refused;
use super::guard::{Asked, TTL, commit, of_driver, of_register};
use crate::headers::{BlobHeaders, FieldText};
use crate::name::ContainerName;
use crate::store::{ContainerInfo, SetHeaders, StoreError, StoreErrorKind};

/// How often a change is computed anew from what others have written meanwhile.
const ATTEMPTS: usize = 100;

/// When to try again while a container is created or deleted, at the latest.
const RETRY: Duration = Duration::from_secs(1);

/// What is kept of a version of a container.
#[derive(Default, Serialize, Deserialize)]
struct Payload {
    /// The first version's generation; none in the first version itself.
    created: Option<Revision>,
    metadata: BTreeMap<String, String>,
}

/// What a write finds of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is no such container.
    Absent,
    /// The register does not know it, but there are objects in it.
    Unknown,
    /// The register knows it, and when it was created.
    Known(Revision),
}

impl Shared {
    /// What there is of a container now.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] while it is being created or deleted.
    pub(super) async fn find(&self, container: &ContainerName) -> Result<Found, StoreError> {
        let record = self.driver.load(&key(container)?).await.map_err(of_driver)?;
        let now = self.driver.now();
        if let Some(permit) = record.permit(now) {
            let retry_after = RETRY.min(now.until(permit.deadline));
            return Err(StoreErrorKind::InFlight { retry_after }.into());
        }
        match record.state(now).version() {
            Some(version) => Ok(Found::Known(created(version))),
            None if self.has_objects(container).await? => Ok(Found::Unknown),
            None => Ok(Found::Absent),
        }
    }

    /// What there is of a container that must be there, such that it can be told from a later one.
    pub(super) async fn expect(&self, container: &ContainerName) -> Result<Found, StoreError> {
        match self.find(container).await? {
            Found::Absent => Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Unknown => {
                self.remember(container).await?;
                self.find(container).await
            }
            known @ Found::Known(_) => Ok(known),
        }
    }

    /// Lets a write in, whose blob's permit was granted before. `expected` is the container that it found when it began, if
    /// it is to be written to that one; otherwise to the one that is there, or is created.
    pub(super) async fn enter(&self, container: &ContainerName, expected: Option<Found>) -> Result<(), StoreError> {
        match (expected, self.find(container).await?) {
            (Some(_), Found::Absent) => Err(StoreErrorKind::ContainerNotFound.into()),
            (Some(Found::Known(before)), Found::Known(now)) if before != now => {
                Err(StoreErrorKind::ContainerNotFound.into())
            }
            (_, Found::Known(_)) => Ok(()),
            // A register in memory may have forgotten it.
            (_, Found::Absent | Found::Unknown) => self.remember(container).await,
        }
    }

    /// What is missing: the blob, or its container as well.
    pub(super) async fn absent(&self, container: &ContainerName) -> StoreError {
        match self.find(container).await {
            Ok(Found::Absent) => StoreErrorKind::ContainerNotFound.into(),
            Ok(_) => StoreErrorKind::NotFound.into(),
            Err(error) => error,
        }
    }

    /// Writes down that there is such a container, unless the register knows it by now.
    pub(super) async fn remember(&self, container: &ContainerName) -> Result<(), StoreError> {
        let key = key(container)?;
        let command = Write {
            method: &Method::PUT,
            preconditions: &Preconditions::default(),
            content: Payload::default().content()?,
            lease: LeaseUse::Read(None),
            based_on: None,
            request: None,
            nonce: nonce().map_err(of_register)?,
        };
        let command = Command::Write(command);
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            if record.settled(now).is_some() {
                return Ok(());
            }
            let Transition { next, outcome } = record.apply(&command, now);
            let Some(next) = next else { return Err(refused(outcome, now)) };
            let swapped = self.driver.register().compare_and_swap(&key, record.revision(), Some(&next)).await;
            if swapped.map_err(of_register)? == Swap::Done {
                return Ok(());
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// The record of a container, which exists: the register learns of it if need be.
    pub(super) async fn adopt(&self, container: &ContainerName) -> Result<Key, StoreError> {
        match self.find(container).await? {
            Found::Absent => return Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Unknown => self.remember(container).await?,
            Found::Known(_) => {}
        }
        key(container)
    }

    pub(super) async fn create_container(
        &self,
        container: &ContainerName,
        headers: &BlobHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        let key = key(container)?;
        let none = Preconditions::default();
        let asked = Asked { method: &Method::PUT, lease: LeaseUse::Read(None), preconditions: &none, ttl: TTL };
        let (grant, begun) = self.begin(&key, &asked, Authority::Register, None).await?;
        let exists = match grant.current.version() {
            Some(_) => Ok(true),
            None => self.has_objects(container).await,
        };
        let content = Payload { created: None, metadata: texts(headers) }.content();
        let content = match (exists, content) {
            (Ok(false), Ok(content)) => content,
            (exists, content) => {
                self.end(&key, begun, Command::Abort(grant.token)).await?;
                return Err(exists.and(content).err().unwrap_or_else(|| StoreErrorKind::ContainerExists.into()));
            }
        };
        let record = self.end(&key, begun, commit(grant.token, content)).await?;
        self.info_of(&record).ok_or_else(|| StoreErrorKind::OutcomeUnknown.into())
    }

    pub(super) async fn container(&self, container: &ContainerName) -> Result<Option<ContainerInfo>, StoreError> {
        let record = self.driver.load(&key(container)?).await.map_err(of_driver)?;
        match self.info_of(&record) {
            Some(info) => Ok(Some(info)),
            None if self.has_objects(container).await? => Ok(Some(unknown())),
            None => Ok(None),
        }
    }

    pub(super) async fn set_container(
        &self,
        container: &ContainerName,
        set: SetHeaders,
    ) -> Result<ContainerInfo, StoreError> {
        let key = self.adopt(container).await?;
        // A container's lease protects it from deletion only.
        let (LeaseUse::Write(id) | LeaseUse::Read(id)) = set.lease;
        let request = set.request.map(|key| key.request(None));
        let nonce = nonce().map_err(of_register)?;
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let Some(version) = record.state(self.driver.now()).version() else {
                return Err(StoreErrorKind::ContainerNotFound.into());
            };
            let headers = set.change.of(&headers(version));
            let command = Write {
                method: &Method::PUT,
                preconditions: &set.preconditions,
                content: Payload { created: Some(created(version)), metadata: texts(&headers) }.content()?,
                lease: LeaseUse::Read(id),
                based_on: Some(version.generation()),
                request,
                nonce,
            };
            let applied = self.driver.apply_in_turn(&key, &Command::Write(command)).await.map_err(of_driver)?;
            match applied.outcome {
                Outcome::Refused(Refusal::Stale) => {}
                Outcome::Written(_) | Outcome::Replayed(_) => {
                    return self.info_of(&applied.after).ok_or_else(|| StoreErrorKind::ContainerNotFound.into());
                }
                outcome => return Err(refused(outcome, self.driver.now()).of_container()),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    fn info_of(&self, record: &Record) -> Option<ContainerInfo> {
        record.state(self.driver.now()).version().map(|version| info(record, version))
    }
}

/// What is known of a container that a record has a version of.
pub(super) fn info(record: &Record, version: &Version) -> ContainerInfo {
    ContainerInfo {
        tag: version.tags().first().cloned(),
        last_modified: Some(version.last_modified()),
        headers: headers(version),
        created: Some(created(version).timestamp()),
        lease: record.lease().copied(),
    }
}

/// What is known of a container that only has objects.
pub(super) fn unknown() -> ContainerInfo {
    let headers = BlobHeaders::default();
    ContainerInfo { tag: None, last_modified: None, headers, created: None, lease: None }
}

/// What the keys of containers begin with.
pub(super) const KEYS: &str = "c/";

pub(super) fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

impl Payload {
    /// A register in memory forgets it all; what cannot be read counts as nothing.
    fn of(version: &Version) -> Self {
        serde_json::from_slice(version.payload()).unwrap_or_default()
    }

    fn content(&self) -> Result<Content, StoreError> {
        let payload = serde_json::to_vec(self);
        let payload = payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(Content::Hashed { hash: ContentHash::of(b""), payload: payload.into() })
    }
}

fn created(version: &Version) -> Revision {
    Payload::of(version).created.unwrap_or(version.generation())
}

fn headers(version: &Version) -> BlobHeaders {
    let field = |(name, value): (String, String)| Some((name.into(), FieldText::new(&value).ok()?));
    let metadata = Payload::of(version).metadata.into_iter().filter_map(field).collect();
    BlobHeaders { metadata, ..BlobHeaders::default() }
}

fn texts(headers: &BlobHeaders) -> BTreeMap<String, String> {
    headers.metadata.iter().map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect()
}
