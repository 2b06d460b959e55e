//! The places of bodies: files in a folder, or objects in a bucket.
//!
//! A body is stored under a name that no other body ever has, before a record names it. Its bytes never change; in a folder, appends
//! may lengthen it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ifmatch_blob::store::{Source, StoreError, StoreErrorKind};
use ifmatch_core::digest::{ContentHash, Hasher};

use super::body_files::BodyName;
use super::payload::Payload;
use super::source::Budget;

/// Keeps the bytes of a short body in memory.
pub(super) type Keep = Box<dyn FnOnce(Bytes) + Send + Sync>;

/// The bodies of a store.
#[async_trait]
pub(super) trait Bodies: fmt::Debug + Send + Sync + 'static {
    /// Rejects a write if too little space is left.
    fn check_space(&self) -> Result<(), StoreError>;

    /// Begins a body, under this name if it doesn't follow from the content.
    fn begin(self: Arc<Self>, name: Option<BodyName>) -> Result<Box<dyn Incoming>, StoreError>;

    /// Opens a body of a known length. Returns `None` if it is known to be removed. Passes the bytes of a short one to `keep`.
    async fn open(
        &self,
        body: BodyName,
        length: u64,
        budget: Option<Budget>,
        keep: Keep,
    ) -> Result<Option<Box<dyn Source>>, StoreError>;

    /// Durably gives a complete body a second name. Returns `None` if the body has been removed, or if it can only be read and
    /// written again.
    async fn duplicate(self: Arc<Self>, body: BodyName) -> Result<Option<Staged>, StoreError>;

    /// Removes a body that no record will ever name.
    async fn remove(&self, body: BodyName);

    /// Removes a body that was replaced, once its readers have finished.
    async fn retire(self: Arc<Self>, body: BodyName);

    /// Removes a body that no record will ever name, without waiting. It may remain.
    fn abandon(self: Arc<Self>, body: BodyName);

    /// Lets blocks follow the body of a version: in its place, if nothing else can have been written behind it, or behind a copy with
    /// this number.
    async fn extend(
        self: Arc<Self>,
        version: Payload,
        nonce: u64,
    ) -> Result<ExtendedBody, StoreError>;

    /// Returns the time after its beginning in which a record must name a body. Later, it may be gone. `None` if it stays.
    fn lifetime(&self) -> Option<Duration>;
}

/// A body that arrives. Dropping it leaves nothing behind, or something that is collected later.
#[async_trait]
pub(super) trait Incoming: Send {
    /// Writes the next bytes.
    async fn write(&mut self, chunk: Vec<u8>) -> Result<(), StoreError>;

    /// Makes the body durable under its name, if it has the declared hash.
    async fn finish(self: Box<Self>, promised: Option<ContentHash>) -> Result<Staged, StoreError>;
}

/// The end of a body, behind which blocks are written once.
#[async_trait]
pub(super) trait BodyEnd: fmt::Debug + Send {
    /// Durably writes the blocks. After an error, what is at the end is unknown.
    async fn write(self: Box<Self>, blocks: Vec<Bytes>) -> Result<(), StoreError>;
}

/// A body that blocks may follow.
pub(super) struct ExtendedBody {
    pub(super) name: BodyName,
    pub(super) end: Box<dyn BodyEnd>,
    /// The state after the present bytes.
    pub(super) hasher: Hasher,
}

/// Returns the error of a body with another hash than the recorded one.
pub(super) fn differs() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unreadable,
        "the body differs from what was stored",
    )
}

/// A complete, durable body that isn't yet part of the store. Dropping it removes the body.
#[derive(Debug)]
pub(super) struct Staged {
    name: BodyName,
    /// `None` once it is kept.
    bodies: Option<Arc<dyn Bodies>>,
}

impl Staged {
    pub(super) fn new(name: BodyName, bodies: Arc<dyn Bodies>) -> Self {
        Self {
            name,
            bodies: Some(bodies),
        }
    }

    pub(super) fn hash(&self) -> ContentHash {
        self.name.hash
    }

    /// Keeps the body.
    pub(super) fn keep(mut self) -> BodyName {
        self.bodies = None;
        self.name
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(bodies) = self.bodies.take() {
            bodies.abandon(self.name);
        }
    }
}
