//! Appends and updates for stores that only replace whole blobs.
//!
//! The content is read and written again, on the condition that the version read is still current. The changes of one blob take turns
//! within the process, so only other processes can be faster.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use ifmatch_core::EntityTag;
use ifmatch_core::lease::SeenLease;
use ifmatch_core::precondition::{Precondition, Preconditions, Verdict};
use ifmatch_runtime::{Clock, KeyedQueue, jittered};

use super::BlobStore;
use super::append::{AppendBlock, Appended};
use super::read::{BlobInfo, Opened, Reading};
use super::update::{ContentChange, Current, Update, Updated};
use super::write::{Delete, MissingContainer, Put};
use crate::body::Upload;
use crate::error::{BoxError, StoreError, StoreErrorKind};
use crate::name::BlobPath;

/// Maximum number of attempts of a change that other processes overtake.
const ATTEMPTS: u32 = 50;
/// Pause after an attempt, lengthened at random to up to twice its length.
const PAUSE: Duration = Duration::from_millis(5);

/// The changes of each blob that wait in this process.
#[derive(Debug, Default)]
pub struct Turns(KeyedQueue<BlobPath>);

/// The result of an attempt.
enum Attempt<T> {
    Done(T),
    /// Another process was faster.
    Overtaken,
}

impl Turns {
    /// Appends a block by writing the blob again, with the block at its end.
    ///
    /// # Errors
    /// Same as [`BlobStore::append`].
    pub async fn append(
        &self,
        store: &dyn BlobStore,
        clock: &dyn Clock,
        blob: &BlobPath,
        append: &AppendBlock,
    ) -> Result<Appended, StoreError> {
        self.in_turn(clock, blob, || append_once(store, blob, append))
            .await
    }

    /// Changes a blob by a function of its content.
    ///
    /// # Errors
    /// Same as [`BlobStore::update`].
    pub async fn update(
        &self,
        store: &dyn BlobStore,
        clock: &dyn Clock,
        blob: &BlobPath,
        update: &Update,
    ) -> Result<Updated, StoreError> {
        self.in_turn(clock, blob, || update_once(store, blob, update))
            .await
    }

    /// Repeats an attempt, in turn, until no other process is faster.
    async fn in_turn<T, F>(
        &self,
        clock: &dyn Clock,
        blob: &BlobPath,
        attempt: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Attempt<T>, StoreError>>,
    {
        let mut turn = self.0.join(blob);
        turn.front().await;
        for _ in 0..ATTEMPTS {
            if let Attempt::Done(done) = attempt().await? {
                return Ok(done);
            }
            clock.sleep(jittered(2 * PAUSE)).await;
        }
        Err(StoreError::new(
            StoreErrorKind::Unavailable,
            "other processes changed the blob during every attempt",
        ))
    }
}

async fn append_once(
    store: &dyn BlobStore,
    blob: &BlobPath,
    append: &AppendBlock,
) -> Result<Attempt<Appended>, StoreError> {
    let Some(opened) = store.open(blob, Reading::WHOLE).await? else {
        let container = store.container(&blob.container).await?;
        return Err(container
            .map_or(StoreErrorKind::ContainerNotFound, |_| {
                StoreErrorKind::NotFound
            })
            .into());
    };
    check(&opened.info, append)?;
    let offset = opened.info.length;
    let (headers, length) = append.after(&opened.info.headers, offset)?;
    let blocks = headers.append.map_or(0, |append| append.blocks);
    let put = Put {
        preconditions: Preconditions::unchanged(Some(&strong_tag(&opened.info)?)),
        lease: append.lease,
        container: MissingContainer::Refuse,
        headers,
        length: Some(length),
        keeps_type: true,
        keeps_tags: true,
        limit: append.limit,
        ..Put::new(followed_by(opened, append.block.clone()).await?)
    };
    let attempt = Attempt::of(store.put(blob, put).await)?;
    Ok(attempt.map(|written| Appended {
        written,
        offset,
        blocks,
    }))
}

async fn update_once(
    store: &dyn BlobStore,
    blob: &BlobPath,
    update: &Update,
) -> Result<Attempt<Updated>, StoreError> {
    let (current, preconditions) = match store.open(blob, Reading::WHOLE.without_lease()).await? {
        Some(opened) => {
            let preconditions = Preconditions::unchanged(Some(&strong_tag(&opened.info)?));
            match read(opened, update.limit).await {
                Err(error) if error.is_of_source() => return Ok(Attempt::Overtaken),
                current => (Some(current?), preconditions),
            }
        }
        None => (None, Preconditions::absent()),
    };
    match (update.change)(current.as_ref()) {
        ContentChange::Keep => Ok(Attempt::Done(Updated::Kept)),
        ContentChange::Replace(bytes) => {
            let length = Some(bytes.len() as u64);
            let put = Put {
                preconditions,
                length,
                ..Put::new(Upload::new(Full::new(bytes)))
            };
            Ok(Attempt::of(store.put(blob, put).await)?.map(Updated::Replaced))
        }
        ContentChange::Delete if current.is_none() => Err(StoreErrorKind::NotFound.into()),
        ContentChange::Delete => {
            let deleted = store
                .delete(
                    blob,
                    Delete {
                        preconditions,
                        ..Delete::default()
                    },
                )
                .await;
            Ok(Attempt::of(deleted)?.map(|()| Updated::Deleted))
        }
    }
}

impl<T> Attempt<T> {
    /// Returns the result of a write on the condition that the version read is still current.
    fn of(result: Result<T, StoreError>) -> Result<Self, StoreError> {
        match result {
            Ok(done) => Ok(Self::Done(done)),
            // The version may also have been replaced while it was read.
            Err(error) if error.kind().is_overtaken() || error.is_of_source() => {
                Ok(Self::Overtaken)
            }
            Err(error) => Err(error),
        }
    }

    fn map<U>(self, with: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(done) => Attempt::Done(with(done)),
            Self::Overtaken => Attempt::Overtaken,
        }
    }
}

/// Evaluates the lease and the conditions of an append on a version.
fn check(info: &BlobInfo, append: &AppendBlock) -> Result<(), StoreError> {
    SeenLease::check(info.lease.as_ref(), append.lease)?;
    let verdict = append
        .preconditions
        .evaluate(&Method::PUT, Some(&info.validators()));
    let failed = match verdict {
        Verdict::Failed(precondition) => Some(precondition),
        _ if append
            .if_tags
            .as_ref()
            .is_some_and(|tags| !tags.holds(&info.headers.tags)) =>
        {
            Some(Precondition::IfMatch)
        }
        _ => None,
    };
    match failed {
        Some(precondition) => Err(StoreErrorKind::PreconditionFailed {
            precondition,
            current: info.tag.clone(),
        }
        .into()),
        None => Ok(()),
    }
}

fn strong_tag(info: &BlobInfo) -> Result<EntityTag, StoreError> {
    let tag = info.tag.clone().filter(|tag| !tag.is_weak());
    tag.ok_or_else(|| {
        StoreError::new(
            StoreErrorKind::Unsupported,
            "the store does not provide strong tags",
        )
    })
}

async fn read(mut opened: Opened, limit: u64) -> Result<Current, StoreError> {
    if opened.info.length > limit {
        return Err(StoreErrorKind::TooLarge { limit }.into());
    }
    let generation = opened.info.generation;
    let bytes = opened
        .source
        .read(None)
        .await?
        .collect()
        .await
        .map_err(|error| StoreError::of_body(error.into()))?;
    Ok(Current {
        bytes: bytes.to_bytes(),
        generation,
    })
}

/// Returns the bytes of the version, followed by the block.
async fn followed_by(mut opened: Opened, block: Bytes) -> Result<Upload, StoreError> {
    let current = opened.source.read(None).await?;
    let frames = stream::try_unfold(
        (opened, current, Some(block)),
        |(opened, mut current, mut block)| async move {
            if block.is_some()
                && let Some(frame) = current.frame().await
            {
                return Ok(Some((frame?, (opened, current, block))));
            }
            let last = block.take().map(Frame::data);
            Ok::<_, BoxError>(last.map(|frame| (frame, (opened, current, block))))
        },
    );
    Ok(Upload::new(StreamBody::new(frames)))
}
