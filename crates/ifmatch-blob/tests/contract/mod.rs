//! What every blob store owes, as tests: one call runs them all, each in containers of its own.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{BlobInfo, BoxError, Delete, Put, Reading, StoreError, StoreErrorKind, Upload, Written};
use ifmatch_blob::{AnyStore, BlobStore};
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::{Precondition, Preconditions};
use ifmatch_core::tag::TagList;

mod bodies;
mod conditions;
mod containers;
pub(crate) mod headers;
pub(crate) mod leases;
mod listing;
mod races;
mod reading;

/// The store under test, and what it need not do.
#[expect(clippy::struct_excessive_bools, reason = "each says of one thing whether it is tested")]
pub(crate) struct Subject {
    pub(crate) store: AnyStore,
    /// Whether header fields come back.
    pub(crate) keeps_headers: bool,
    /// Whether the retry of a request gets the first answer again.
    pub(crate) knows_retries: bool,
    /// Whether the retry of a container's deletion gets the first answer again.
    pub(crate) remembers_deletions: bool,
    /// Whether blobs and containers have leases.
    pub(crate) leases: bool,
    /// Whether there can be the blobs `a` and `a/b`.
    pub(crate) nests: bool,
    /// How many writers race: fewer where each write is slow.
    pub(crate) writers: usize,
}

/// Runs all tests.
pub(crate) async fn check(subject: &Subject) {
    reading::check(subject).await;
    conditions::check(subject).await;
    bodies::check(subject).await;
    listing::check(subject).await;
    headers::check(subject).await;
    containers::check(subject).await;
    leases::check(subject).await;
    races::check(subject).await;
}

pub(crate) fn blob(container: &str, name: &str) -> BlobPath {
    BlobPath {
        container: ContainerName::new(container).expect("a valid container"),
        name: BlobName::new(name).expect("a valid name"),
    }
}

/// A write without conditions.
pub(crate) fn put(bytes: impl Into<Bytes>) -> Put {
    Put::new(Upload::new(Full::new(bytes.into())))
}

/// A body that comes in these pieces, and then fails if it is told to.
pub(crate) fn pieces(pieces: Vec<Bytes>, error: Option<&'static str>) -> Upload {
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    let frames = frames.chain(error.map(|error| Err(BoxError::from(error))));
    Upload::new(StreamBody::new(stream::iter(frames)))
}

pub(crate) fn if_match(tag: &EntityTag) -> Preconditions {
    Preconditions { if_match: Some(TagList::Tags(vec![tag.clone()])), ..Preconditions::default() }
}

pub(crate) fn if_absent() -> Preconditions {
    Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() }
}

/// Bytes that differ everywhere.
pub(crate) fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from((at * 31 + at / 251) % 256).expect("a byte")).collect()
}

impl Subject {
    pub(crate) async fn write(&self, blob: &BlobPath, bytes: impl Into<Bytes>) -> Written {
        self.store.put(blob, put(bytes)).await.expect("an unconditional write succeeds")
    }

    pub(crate) async fn write_if(
        &self,
        blob: &BlobPath,
        preconditions: Preconditions,
        bytes: impl Into<Bytes>,
    ) -> Result<Written, StoreError> {
        self.store.put(blob, Put { preconditions, ..put(bytes) }).await
    }

    pub(crate) async fn delete_if(&self, blob: &BlobPath, preconditions: Preconditions) -> Result<(), StoreError> {
        self.store.delete(blob, Delete { preconditions, ..Delete::default() }).await
    }

    /// The blob as one read gives it.
    pub(crate) async fn read(&self, blob: &BlobPath) -> Option<(BlobInfo, Bytes)> {
        let mut opened = self.store.open(blob, Reading::Whole).await.expect("readable")?;
        let body = opened.source.read(None).await.expect("readable");
        Some((opened.info, body.collect().await.expect("readable").to_bytes()))
    }

    pub(crate) async fn head(&self, blob: &BlobPath) -> Option<BlobInfo> {
        Some(self.store.open(blob, Reading::Head).await.expect("readable")?.info)
    }

    pub(crate) async fn tag(&self, blob: &BlobPath) -> EntityTag {
        self.head(blob).await.expect("there is a blob").tag.expect("it has a tag")
    }
}

/// Why something was refused.
pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.expect_err("refused").kind().clone()
}

/// The condition that a refusal names, and the tag that it tells.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> (Precondition, Option<EntityTag>) {
    match result.expect_err("refused").kind() {
        StoreErrorKind::PreconditionFailed { precondition, current } => (*precondition, current.clone()),
        other => panic!("another refusal: {other:?}"),
    }
}
