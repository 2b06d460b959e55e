//! Writing and deleting a blob: stage the body, swap the record, remove the body of the version before.

use std::fs;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use ifmatch_core::command::{Command, Content, Outcome, Refusal, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::{Preconditions, Verdict};
use ifmatch_core::record::{Receipt, Record, RequestId, Version};
use ifmatch_core::tag::TagList;
use ifmatch_store::driver::{Applied, DriverError};
use ifmatch_store::register::RegisterErrorKind;
use ifmatch_store::{Clock, Key, Register, nonce};
use tokio::task::spawn_blocking;

use super::error::{index, refused};
use super::folder::BodyName;
use super::payload::{Payload, Place};
use super::upload::{Expected, Received, receive};
use super::{Inner, key};
use crate::headers::BlobHeaders;
use crate::name::{BlobPath, ContainerName};
use crate::store::{Delete, Put, StoreError, StoreErrorKind, Written};

pub(super) async fn put<R: Register, C: Clock>(
    inner: &Arc<Inner<R, C>>,
    blob: &BlobPath,
    put: Put,
) -> Result<Written, StoreError> {
    let key = key::of_blob(blob)?;
    if put.request.is_none() {
        // A retry has its answer in the record, whatever the conditions say by now; but which request it
        // repeats is known only from the whole body.
        inner.check_early(&key, &put.preconditions).await?;
    }
    let expected = Expected { length: put.length, digest: put.digest, limit: put.limit };
    let received = receive(&inner.folder, random()?, put.body, &expected).await?;
    let request = put.request.map(|key| key.request(Some(&received.hash)));
    let change = Change { key, preconditions: put.preconditions, request, nonce: random()? };
    inner.check(&change).await?;
    inner.ensure_container(&blob.container).await?;
    // A client that goes away does not stop a commit half way: who removes which file depends on its outcome.
    let commit = commit(Arc::clone(inner), change, received, put.headers);
    tokio::spawn(commit).await.map_err(|error| StoreError::new(StoreErrorKind::OutcomeUnknown, error))?
}

pub(super) async fn delete<R: Register, C: Clock>(
    inner: &Arc<Inner<R, C>>,
    blob: &BlobPath,
    delete: Delete,
) -> Result<(), StoreError> {
    let request = delete.request.map(|key| key.request(None));
    let key = key::of_blob(blob)?;
    let change = Change { key, preconditions: delete.preconditions, request, nonce: random()? };
    let inner = Arc::clone(inner);
    let remove = async move {
        let applied = inner.swap(&change, &Method::DELETE, Content::Absent).await.map_err(index)?;
        inner.settle(applied, None).await.map(drop)
    };
    tokio::spawn(remove).await.map_err(|error| StoreError::new(StoreErrorKind::OutcomeUnknown, error))?
}

/// What a write wants, apart from the content.
struct Change {
    key: Key,
    preconditions: Preconditions,
    request: Option<RequestId>,
    nonce: u64,
}

impl Change {
    fn write<'a>(&'a self, method: &'a Method, content: Content) -> Write<'a> {
        let preconditions = &self.preconditions;
        Write {
            method,
            preconditions,
            content,
            lease: LeaseUse::default(),
            based_on: None,
            request: self.request,
            nonce: self.nonce,
        }
    }
}

/// Swaps the record. The one step that makes the write take effect.
async fn commit<R: Register, C: Clock>(
    inner: Arc<Inner<R, C>>,
    change: Change,
    received: Received,
    headers: BlobHeaders,
) -> Result<Written, StoreError> {
    let (hash, length) = (received.hash, received.length);
    // If this task ends without an outcome, the file must stay: a record may point to it.
    let (place, staged) = received.keep();
    let payload = Payload { hash, length, place, headers }.encode();
    let payload = payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
    match inner.swap(&change, &Method::PUT, Content::Hashed { hash, payload }).await {
        Ok(applied) => Ok(written(inner.settle(applied, staged).await?, hash)),
        Err(DriverError::Register(error)) if error.kind() == RegisterErrorKind::Ambiguous => Err(index(error.into())),
        Err(error) => {
            inner.remove(staged).await;
            Err(index(error))
        }
    }
}

impl<R: Register, C: Clock> Inner<R, C> {
    /// Refuses a write whose conditions fail already, before its body is asked for.
    async fn check_early(&self, key: &Key, preconditions: &Preconditions) -> Result<(), StoreError> {
        if preconditions.is_empty() {
            return Ok(());
        }
        let record = self.driver.load(key).await.map_err(index)?;
        let version = record.state(self.driver.now()).version();
        let current = version.map(Version::validators);
        match preconditions.evaluate(&Method::PUT, current.as_ref()) {
            Verdict::Proceed | Verdict::NotModified => Ok(()),
            Verdict::Failed(precondition) => {
                let current = version.and_then(|version| version.tags().first().cloned());
                Err(StoreErrorKind::PreconditionFailed { precondition, current }.into())
            }
        }
    }

    /// Refuses a write that would be refused now, before it leaves a container behind.
    async fn check(&self, change: &Change) -> Result<(), StoreError> {
        let record = self.driver.load(&change.key).await.map_err(index)?;
        let write = Command::Write(change.write(&Method::PUT, Content::Unknown));
        match record.apply(&write, self.driver.now()).outcome {
            Outcome::Refused(refusal) => Err(refused(refusal, self.driver.now())),
            _ => Ok(()),
        }
    }

    /// Creates a container's record, so that the container is listed even without blobs.
    async fn ensure_container(&self, container: &ContainerName) -> Result<(), StoreError> {
        let key = key::of_container(container)?;
        let record = self.driver.load(&key).await.map_err(index)?;
        if record.state(self.driver.now()).version().is_some() {
            return Ok(());
        }
        let hash = ContentHash::of(b"");
        let place = Place::Inline(Bytes::new());
        let payload = Payload { hash, length: 0, place, headers: BlobHeaders::default() }.encode();
        let payload = payload.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
        let preconditions = Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() };
        let change = Change { key, preconditions, request: None, nonce: random()? };
        let applied = self.swap(&change, &Method::PUT, Content::Hashed { hash, payload }).await.map_err(index)?;
        match applied.outcome {
            // With a failed precondition another writer was faster.
            Outcome::Written(_) | Outcome::Refused(Refusal::PreconditionFailed { .. }) => Ok(()),
            outcome => Err(unexpected(outcome, self.driver.now())),
        }
    }

    async fn swap(&self, change: &Change, method: &Method, content: Content) -> Result<Applied, DriverError> {
        self.driver.apply(&change.key, &Command::Write(change.write(method, content))).await
    }

    /// Removes the file that nothing points to after this outcome: the one before, or the staged one.
    async fn settle(&self, applied: Applied, staged: Option<BodyName>) -> Result<Receipt, StoreError> {
        match applied.outcome {
            Outcome::Written(receipt) => {
                self.remove(body_of(&applied.before, self.driver.now())).await;
                Ok(receipt)
            }
            Outcome::Replayed(receipt) => {
                self.remove(staged).await;
                Ok(receipt)
            }
            outcome => {
                self.remove(staged).await;
                Err(unexpected(outcome, self.driver.now()))
            }
        }
    }

    async fn remove(&self, body: Option<BodyName>) {
        let Some(body) = body else { return };
        let path = self.folder.body(&body);
        let removed = spawn_blocking(move || fs::remove_file(path)).await.map_err(io::Error::other).flatten();
        if let Err(error) = removed {
            tracing::warn!(%error, hash = body.hash.hex(), "a body is left over; the next start collects it");
        }
    }
}

/// The file of the version in a record. One that cannot be read may have a file: the next start sees to it.
fn body_of(record: &Record, now: Timestamp) -> Option<BodyName> {
    let version = record.state(now).version()?;
    Payload::decode(version.payload()).ok()?.file()
}

/// What any other outcome than a write's means. Only refusals come of writes.
fn unexpected(outcome: Outcome, now: Timestamp) -> StoreError {
    match outcome {
        Outcome::Refused(refusal) => refused(refusal, now),
        _ => StoreError::new(StoreErrorKind::Unavailable, "the index carried out another command"),
    }
}

fn written(receipt: Receipt, hash: ContentHash) -> Written {
    Written {
        tag: receipt.tag,
        last_modified: receipt.generation.timestamp().last_modified(),
        hash: Some(hash),
        generation: Some(receipt.generation),
        created: receipt.created,
    }
}

fn random() -> Result<u64, StoreError> {
    nonce().map_err(|error| index(error.into()))
}
