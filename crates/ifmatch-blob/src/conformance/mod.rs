//! The suite that every blob store must pass. A store's test fills in a [`Subject`] and calls [`check`].
//!
//! Each check uses its own containers. A failed check panics.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed check panics"
)]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::{Precondition, Preconditions};
use tokio::sync::oneshot;

use crate::BlobStore;
use crate::name::{BlobName, BlobPath, ContainerName};
use crate::store::{
    BlobInfo, BoxError, Delete, Put, Reading, StoreError, StoreErrorKind, Upload, Written,
};

mod bodies;
mod changes;
mod conditions;
mod containers;
pub mod headers;
pub mod leases;
mod listing;
mod races;
mod reading;
mod tags;

pub use races::count;

/// A store under test, and its capabilities.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate capability"
)]
pub struct Subject {
    /// The store.
    pub store: Arc<dyn BlobStore>,
    /// The store keeps header fields.
    pub keeps_headers: bool,
    /// Tags change without a new version.
    pub changes_tags: bool,
    /// The retry of a request gets the first response again.
    pub knows_retries: bool,
    /// The retry of a container's deletion gets the first response again.
    pub remembers_deletions: bool,
    /// Blobs and containers have leases.
    pub leases: bool,
    /// The blobs `a` and `a/b` can coexist.
    pub nests: bool,
    /// Number of writers in a race.
    pub writers: usize,
}

/// Runs every check.
///
/// # Panics
/// Panics if the store breaks the contract.
pub async fn check(subject: &Subject) {
    reading::check(subject).await;
    conditions::check(subject).await;
    bodies::check(subject).await;
    listing::check(subject).await;
    headers::check(subject).await;
    changes::check(subject).await;
    tags::check(subject).await;
    containers::check(subject).await;
    leases::check(subject).await;
    races::check(subject).await;
}

/// Returns a blob's path.
///
/// # Panics
/// Panics if a name is invalid.
pub fn blob(container: &str, name: &str) -> BlobPath {
    BlobPath {
        container: ContainerName::new(container).expect("a valid container"),
        name: BlobName::new(name).expect("a valid name"),
    }
}

/// Returns a write of these bytes without conditions.
pub fn put(bytes: impl Into<Bytes>) -> Put {
    Put::new(Upload::new(Full::new(bytes.into())))
}

/// Returns a body that arrives in these pieces, then fails with `error` if there is one.
pub fn pieces(pieces: Vec<Bytes>, error: Option<&'static str>) -> Upload {
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    let frames = frames.chain(error.map(|error| Err(BoxError::from(error))));
    Upload::new(StreamBody::new(stream::iter(frames)))
}

/// A body that reports when it is requested, and arrives when the test says so.
pub fn gated(text: &'static str) -> (Upload, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let ((ask, asked), (open, opened)) = (oneshot::channel(), oneshot::channel::<()>());
    let body = StreamBody::new(stream::once(async move {
        let _ = ask.send(());
        let _ = opened.await;
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())))
    }));
    (Upload::new(body), asked, open)
}

/// Returns the condition that the current tag is `tag`.
pub fn if_match(tag: &EntityTag) -> Preconditions {
    Preconditions::unchanged(Some(tag))
}

/// Returns the condition that there is no blob.
pub fn if_absent() -> Preconditions {
    Preconditions::absent()
}

/// Returns bytes in which shifted or swapped parts are noticed.
///
/// # Panics
/// Never.
pub fn pattern(length: usize) -> Bytes {
    (0..length)
        .map(|at| u8::try_from((at * 31 + at / 251) % 256).expect("a byte"))
        .collect()
}

impl Subject {
    /// Writes a blob without conditions.
    ///
    /// # Panics
    /// Panics if the store refuses.
    pub async fn write(&self, blob: &BlobPath, bytes: impl Into<Bytes>) -> Written {
        self.store
            .put(blob, put(bytes))
            .await
            .expect("an unconditional write succeeds")
    }

    /// Writes a blob on these conditions.
    pub async fn write_if(
        &self,
        blob: &BlobPath,
        preconditions: Preconditions,
        bytes: impl Into<Bytes>,
    ) -> Result<Written, StoreError> {
        self.store
            .put(
                blob,
                Put {
                    preconditions,
                    ..put(bytes)
                },
            )
            .await
    }

    /// Deletes a blob on these conditions.
    pub async fn delete_if(
        &self,
        blob: &BlobPath,
        preconditions: Preconditions,
    ) -> Result<(), StoreError> {
        self.store
            .delete(
                blob,
                Delete {
                    preconditions,
                    ..Delete::default()
                },
            )
            .await
    }

    /// Returns a blob and its bytes as one read gives them.
    ///
    /// # Panics
    /// Panics if the blob can't be read.
    pub async fn read(&self, blob: &BlobPath) -> Option<(BlobInfo, Bytes)> {
        let mut opened = self
            .store
            .open(blob, Reading::WHOLE)
            .await
            .expect("readable")?;
        let body = opened.source.read(None).await.expect("readable");
        Some((
            opened.info,
            body.collect().await.expect("readable").to_bytes(),
        ))
    }

    /// Returns a blob's properties.
    ///
    /// # Panics
    /// Panics if the blob can't be read.
    pub async fn head(&self, blob: &BlobPath) -> Option<BlobInfo> {
        Some(
            self.store
                .open(blob, Reading::HEAD)
                .await
                .expect("readable")?
                .info,
        )
    }

    /// Returns a blob's tag.
    ///
    /// # Panics
    /// Panics if there is no such blob.
    pub async fn tag(&self, blob: &BlobPath) -> EntityTag {
        self.head(blob)
            .await
            .expect("there is a blob")
            .tag
            .expect("it has a tag")
    }
}

/// Returns the kind of a refusal.
///
/// # Panics
/// Panics if the result isn't an error.
pub fn kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.expect_err("refused").kind().clone()
}

/// Returns the condition that a refusal names, and the current tag that it reports.
///
/// # Panics
/// Panics if the result is anything else.
pub fn refusal<T: std::fmt::Debug>(
    result: Result<T, StoreError>,
) -> (Precondition, Option<EntityTag>) {
    match result.expect_err("refused").kind() {
        StoreErrorKind::PreconditionFailed {
            precondition,
            current,
        } => (*precondition, current.clone()),
        other => panic!("another refusal: {other:?}"),
    }
}
