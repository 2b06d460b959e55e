//! A change of one record and of the files that belong to it.

use std::fs;
use std::io;

use http::Method;
use ifmatch_core::command::{Command, Content, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Receipt, Record, RequestId, Version};
use ifmatch_core::tag::TagList;
use ifmatch_register::{Applied, DriverError, Key};
use tokio::task::spawn_blocking;

use super::Inner;
use super::body_files::BodyName;
use super::payload::Payload;
use ifmatch_blob::records::{of_driver, refused};
use ifmatch_blob::store::{HeaderChange, StoreError, StoreErrorKind};

/// Maximum number of attempts at a change that loses races.
const ATTEMPTS: usize = 100;

/// A change apart from its content.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) method: Method,
    pub(super) preconditions: Preconditions,
    pub(super) lease: LeaseUse,
    pub(super) request: Option<RequestId>,
    pub(super) nonce: u64,
}

/// A change that has taken place.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) receipt: Receipt,
    /// An earlier request with the same key made it.
    pub(super) is_replay: bool,
}

impl Change {
    pub(super) fn write(&self, content: Content) -> Write<'_> {
        Write::new(&self.method, &self.preconditions, content, self.nonce)
            .with_lease(self.lease)
            .with_request(self.request)
    }
}

impl Inner {
    /// Swaps the record, which is the commit point of a change.
    pub(super) async fn swap(&self, key: &Key, change: &Change, content: Content) -> Result<Applied, StoreError> {
        let loaded = self.driver.load(key).await.map_err(of_driver)?;
        self.apply(key, loaded, change.write(content)).await
    }

    /// Applies a write, first to the loaded record.
    async fn apply(&self, key: &Key, loaded: Record, write: Write<'_>) -> Result<Applied, StoreError> {
        let counted = self.internal_counts.begin(key);
        let applied = self.driver.apply_to(key, Some(loaded), &Command::Write(write)).await.map_err(of_driver)?;
        if let Some(counted) = counted {
            counted.end(&applied, self.driver.now());
        }
        Ok(applied)
    }

    /// Swaps in the result of `content` for the version that it replaces, or for `None` if there is none.
    pub(super) async fn revise(
        &self,
        key: &Key,
        change: &Change,
        content: impl Fn(Option<&Version>) -> Result<Content, StoreError> + Send,
    ) -> Result<Applied, StoreError> {
        let if_absent = Preconditions { if_none_match: Some(TagList::Any), ..change.preconditions.clone() };
        for _ in 0..ATTEMPTS {
            let record = self.driver.load(key).await.map_err(of_driver)?;
            let found = record.state(self.driver.now()).version();
            let mut write = change.write(content(found)?);
            let found = found.map(Version::generation);
            match found {
                Some(_) => write.based_on = found,
                None => write.preconditions = &if_absent,
            }
            let applied = self.apply(key, record, write).await?;
            let overtaken = match &applied.outcome {
                Outcome::Refused(Refusal::Stale) => true,
                Outcome::Refused(Refusal::PreconditionFailed { .. }) => {
                    found.is_none() && applied.before.state(self.driver.now()).version().is_some()
                }
                _ => false,
            };
            if !overtaken {
                return Ok(applied);
            }
        }
        Err(of_driver(DriverError::Contention))
    }

    /// Changes header fields. The body stays in its place.
    pub(super) async fn set_fields(
        &self,
        key: &Key,
        change: &Change,
        fields: &HeaderChange,
    ) -> Result<(Settled, Record), StoreError> {
        let content = |version: Option<&Version>| match version {
            Some(version) => {
                let payload = payload_of(version)?;
                let (created, headers) = (Some(payload.created(version)), fields.of(&payload.headers));
                encoded(&Payload { created, headers, ..payload })
            }
            // There is no version, so the change is refused, unless it is the retry of one that took effect.
            None => Ok(Content::Absent),
        };
        let applied = self.revise(key, change, content).await?;
        let after = applied.after.clone();
        Ok((self.settle(applied, None).await?, after))
    }

    /// Removes the file that is unreferenced after this outcome: the previous one, or the staged one.
    pub(super) async fn settle(&self, applied: Applied, staged: Option<BodyName>) -> Result<Settled, StoreError> {
        let now = self.driver.now();
        match applied.outcome {
            Outcome::Written(receipt) => {
                let kept = body_of(&applied.after, now);
                self.remove(body_of(&applied.before, now).filter(|before| Some(*before) != kept)).await;
                Ok(Settled { receipt, is_replay: false })
            }
            Outcome::Replayed(receipt) => {
                self.remove(staged).await;
                Ok(Settled { receipt, is_replay: true })
            }
            outcome => {
                self.remove(staged).await;
                Err(refused(outcome, now))
            }
        }
    }

    /// Removes a file, if there is one. During a snapshot, it is removed afterwards.
    pub(super) async fn remove(&self, body: Option<BodyName>) {
        let Some(body) = body.filter(|body| !self.removals.postpone(*body)) else { return };
        let path = self.folder.body(&body);
        let removed = spawn_blocking(move || fs::remove_file(path)).await.map_err(io::Error::other).flatten();
        if let Err(error) = removed {
            tracing::warn!(%error, hash = body.hash.hex(), "a body remains; the next start collects it");
        }
    }
}

/// Decodes the payload of a version.
pub(super) fn payload_of(version: &Version) -> Result<Payload, StoreError> {
    Payload::of(version).map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))
}

/// Returns the file of the version in a record. A payload that cannot be decoded may refer to a file, which the next
/// start handles.
pub(super) fn body_of(record: &Record, now: Timestamp) -> Option<BodyName> {
    let version = record.state(now).version()?;
    Payload::file_in(version.payload()).ok()?
}

/// Returns the content of a version with this payload.
pub(super) fn encoded(payload: &Payload) -> Result<Content, StoreError> {
    let hash = payload.hash;
    let payload = payload.encode().map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
    Ok(Content::Hashed { hash, payload })
}
