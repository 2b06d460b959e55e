//! Which container a blob belongs to. Containers of one name come and go; each has an incarnation, which its objects carry.
//!
//! An object of an older incarnation is not a blob: it is the late work of a writer that a deletion overtook. Therefore no
//! write slips through a deletion, whatever the network, or a listing of the register, makes of the order.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Command, Content, Transition, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, State, Version};
use ifmatch_store::register::{RegisterErrorKind, Swap};
use ifmatch_store::{Key, Register, nonce};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::attributes::Current;
use super::failure::refused;
use super::guard::{of_driver, of_register};
use crate::headers::{BlobHeaders, FieldText};
use crate::name::ContainerName;
use crate::store::{MissingContainer, StoreError, StoreErrorKind};

/// Maximum number of attempts at a change that others overtake.
pub(super) const ATTEMPTS: usize = 100;
/// Longest time until a client should try again while a container is being deleted.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Prefix of the keys of containers.
pub(super) const KEYS: &str = "c/";

/// Returns the key of a container's record.
pub(super) fn key(container: &ContainerName) -> Result<Key, StoreError> {
    let key = Key::new(format!("{KEYS}{container}"));
    key.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

/// A container that the register knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// Revision that created the container: larger than that of every earlier one of its name.
    pub(super) incarnation: Revision,
    /// Oldest incarnation with blobs in the container: its own, unless it was found with objects in it.
    since: Revision,
}

/// The objects in a container's folder that are its blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Members(Option<Revision>);

impl Members {
    /// The objects of this incarnation and later ones.
    pub(super) fn since(oldest: Revision) -> Self {
        Self(Some(oldest))
    }

    /// No objects: the container is being deleted.
    pub(super) const NONE: Self = Self(None);

    /// All objects.
    pub(super) const ALL: Self = Self(Some(Revision::NONE));

    /// Whether an object is a blob of the container. One without an incarnation is: another program wrote it, or the store
    /// keeps no metadata.
    pub(super) fn contain(&self, object: &Current) -> bool {
        self.0.is_some() && object.incarnation.is_none_or(|incarnation| self.include(incarnation))
    }

    fn include(&self, incarnation: Revision) -> bool {
        self.0.is_some_and(|oldest| incarnation >= oldest)
    }

    /// Whether all objects are blobs.
    pub(super) fn are_all(&self) -> bool {
        *self == Self::ALL
    }
}

impl Home {
    /// The objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        Members::since(self.since)
    }
}

/// The state of a container in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    /// It exists.
    Known(Home),
    /// It is being deleted; until then it is the turn of one deleter.
    Deleting(Timestamp),
    /// It does not exist, unless there are objects of this incarnation, or a later one, in its folder.
    Gone(Revision),
}

impl Registered {
    /// Reads a container's record.
    pub(super) fn of(record: &Record, now: Timestamp) -> Self {
        // Only releases before this one take a permit to delete a container.
        if let Some(permit) = record.permit(now) {
            return Self::Deleting(permit.deadline);
        }
        match record.state(now) {
            State::Present(version) => {
                let payload = Payload::of(version);
                match payload.deleting {
                    Some(until) => Self::Deleting(until),
                    None => Self::Known(payload.home(version)),
                }
            }
            State::Absent => Self::Gone(record.revision()),
            State::Unknown => Self::Gone(Revision::NONE),
        }
    }

    /// The objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        match self {
            Self::Known(home) => home.members(),
            Self::Deleting(_) => Members::NONE,
            Self::Gone(since) => Members::since(*since),
        }
    }
}

/// What a write finds of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is no such container.
    Absent(Members),
    /// The register does not know it, but it has blobs.
    Unknown(Members),
    /// The register knows it.
    Known(Home),
}

impl Found {
    /// The objects that are blobs of the container.
    pub(super) fn members(&self) -> Members {
        match self {
            Self::Absent(members) | Self::Unknown(members) => *members,
            Self::Known(home) => home.members(),
        }
    }
}

impl Shared {
    /// Returns the state of a container in the register.
    pub(super) async fn registered(&self, container: &ContainerName) -> Result<Registered, StoreError> {
        let record = self.driver.load(&key(container)?).await.map_err(of_driver)?;
        Ok(Registered::of(&record, self.driver.now()))
    }

    /// Looks for a container.
    ///
    /// # Errors
    /// [`StoreErrorKind::InFlight`] while it is being deleted. A deletion that was left half way goes on in the background.
    pub(super) async fn find(&self, container: &ContainerName) -> Result<Found, StoreError> {
        match self.registered(container).await? {
            Registered::Known(home) => Ok(Found::Known(home)),
            Registered::Deleting(until) => Err(self.is_deleting(container, until)),
            gone @ Registered::Gone(_) => {
                let members = gone.members();
                let exists = self.has_blobs(container, members).await?;
                Ok(if exists { Found::Unknown(members) } else { Found::Absent(members) })
            }
        }
    }

    /// Returns the refusal of a request for a container that is being deleted, and sees to it that the deletion goes on.
    pub(super) fn is_deleting(&self, container: &ContainerName, until: Timestamp) -> StoreError {
        let left = self.driver.now().until(until);
        if left.is_zero() {
            self.resume_deletion(container);
        }
        let retry_after = if left.is_zero() { RETRY } else { RETRY.min(left) };
        StoreErrorKind::InFlight { retry_after }.into()
    }

    /// Returns the container, which must exist.
    pub(super) async fn expect(&self, container: &ContainerName) -> Result<Home, StoreError> {
        match self.find(container).await? {
            Found::Absent(_) => Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Unknown(_) => self.remember(container, true).await,
            Found::Known(home) => Ok(home),
        }
    }

    /// Returns the container, which is created if need be.
    pub(super) async fn ensure(&self, container: &ContainerName) -> Result<Home, StoreError> {
        match self.find(container).await? {
            Found::Absent(_) => self.remember(container, false).await,
            Found::Unknown(_) => self.remember(container, true).await,
            Found::Known(home) => Ok(home),
        }
    }

    /// Lets a write into the container that it found under the permit of its blob. `expected` is the incarnation that the
    /// write is bound to, if it is.
    pub(super) async fn enter(
        &self,
        container: &ContainerName,
        found: Found,
        missing: MissingContainer,
        expected: Option<Revision>,
    ) -> Result<Home, StoreError> {
        let lost = || match missing {
            MissingContainer::Refuse => StoreErrorKind::ContainerNotFound,
            MissingContainer::Create => StoreErrorKind::InFlight { retry_after: RETRY },
        };
        let is_lost = expected.is_some_and(|expected| match found {
            Found::Known(home) => home.incarnation != expected,
            // A register in memory may have forgotten the container; after a deletion, the bytes belong to nothing.
            Found::Unknown(members) | Found::Absent(members) => !members.include(expected),
        });
        match found {
            _ if is_lost => Err(lost().into()),
            Found::Known(home) => Ok(home),
            Found::Absent(_) if missing == MissingContainer::Refuse => Err(StoreErrorKind::ContainerNotFound.into()),
            Found::Absent(_) => self.remember(container, false).await,
            Found::Unknown(_) => self.remember(container, true).await,
        }
    }

    /// Returns why a blob is missing: there is no such blob, or no such container either.
    pub(super) async fn absent(&self, container: &ContainerName) -> StoreError {
        match self.find(container).await {
            Ok(Found::Absent(_)) => StoreErrorKind::ContainerNotFound.into(),
            Ok(_) => StoreErrorKind::NotFound.into(),
            Err(error) => error,
        }
    }

    /// Records a container, unless the register knows it by now. `adopts`: with the objects in its folder.
    async fn remember(&self, container: &ContainerName, adopts: bool) -> Result<Home, StoreError> {
        let created = self.record_container(container, adopts, BTreeMap::new()).await?;
        match Registered::of(&created.record, self.driver.now()) {
            Registered::Known(home) => Ok(home),
            Registered::Deleting(until) => Err(self.is_deleting(container, until)),
            Registered::Gone(_) => Err(StoreErrorKind::Unavailable.into()),
        }
    }

    /// Records a container, unless the register knows it.
    pub(super) async fn record_container(
        &self,
        container: &ContainerName,
        adopts: bool,
        metadata: BTreeMap<String, String>,
    ) -> Result<Recorded, StoreError> {
        let (key, nonce) = (key(container)?, nonce().map_err(of_register)?);
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(&key).await.map_err(of_driver)?;
            let now = self.driver.now();
            let Registered::Gone(since) = Registered::of(&record, now) else {
                return Ok(Recorded { record, is_new: false });
            };
            let payload = Payload { since: adopts.then_some(since), metadata: metadata.clone(), ..Payload::default() };
            let command = Write {
                method: &Method::PUT,
                preconditions: &Preconditions::default(),
                content: payload.content()?,
                lease: LeaseUse::Read(None),
                based_on: None,
                request: None,
                nonce,
            };
            let Transition { next, outcome } = record.apply(&Command::Write(command), now);
            let Some(next) = next else { return Err(refused(outcome, now)) };
            if self.swap(&key, &record, &next).await? {
                return Ok(Recorded { record: next, is_new: true });
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Replaces a record. False: another one was faster.
    async fn swap(&self, key: &Key, record: &Record, next: &Record) -> Result<bool, StoreError> {
        match self.driver.register().compare_and_swap(key, record.revision(), Some(next)).await {
            Ok(swap) => Ok(swap == Swap::Done),
            Err(error) if error.kind() == RegisterErrorKind::Ambiguous => match self.driver.load(key).await {
                Ok(stored) if stored == *next => Ok(true),
                _ => Err(of_register(error)),
            },
            Err(error) => Err(of_register(error)),
        }
    }
}

/// The record of a container after an attempt to create it.
pub(super) struct Recorded {
    pub(super) record: Record,
    /// Whether this attempt created it.
    pub(super) is_new: bool,
}

/// The part of a container's version that the register does not understand.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Payload {
    /// The first version's generation; none in the first version itself.
    created: Option<Revision>,
    /// Oldest incarnation with blobs in the container, unless that is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Revision>,
    /// The end of a deleter's turn. Set from the beginning of the container's deletion on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleting: Option<Timestamp>,
    metadata: BTreeMap<String, String>,
}

impl Payload {
    /// Reads a version's payload. One that cannot be read counts as empty.
    pub(super) fn of(version: &Version) -> Self {
        serde_json::from_slice(version.payload()).unwrap_or_default()
    }

    /// The same in a later version.
    pub(super) fn later(self, version: &Version) -> Self {
        let Home { incarnation, since } = self.home(version);
        Self { created: Some(incarnation), since: Some(since), ..self }
    }

    /// The same with the user's own fields replaced.
    pub(super) fn with_headers(self, headers: &BlobHeaders) -> Self {
        Self { metadata: texts(headers), ..self }
    }

    /// The same of a container that is being deleted, with the end of the deleter's turn.
    pub(super) fn deleting(self, until: Timestamp) -> Self {
        Self { deleting: Some(until), ..self }
    }

    fn home(&self, version: &Version) -> Home {
        let incarnation = self.created.unwrap_or(version.generation());
        Home { incarnation, since: self.since.unwrap_or(incarnation) }
    }

    /// Returns the user's own fields.
    pub(super) fn headers(self) -> BlobHeaders {
        let field = |(name, value): (String, String)| Some((name.into(), FieldText::new(&value).ok()?));
        BlobHeaders { metadata: self.metadata.into_iter().filter_map(field).collect(), ..BlobHeaders::default() }
    }

    /// Returns when the container was created.
    pub(super) fn created(&self, version: &Version) -> Timestamp {
        self.home(version).incarnation.timestamp()
    }

    /// Encodes the payload.
    pub(super) fn content(&self) -> Result<Content, StoreError> {
        let payload = serde_json::to_vec(self);
        let payload = payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        Ok(Content::Hashed { hash: ContentHash::of(b""), payload: payload.into() })
    }
}

/// Returns the user's own fields as text.
pub(super) fn texts(headers: &BlobHeaders) -> BTreeMap<String, String> {
    headers.metadata.iter().map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect()
}
