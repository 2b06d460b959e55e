//! Snapshots: read-only copies of versions of a blob, each named by the time at which it was taken.
//!
//! A snapshot is a blob in an internal container, so no store needs to know about snapshots. Its name begins with what identifies its
//! blob's *life*: the container and its creation, the blob and its creation. Nothing reaches a deleted blob's
//! snapshots, even if another blob gets its name: they are garbage. The bytes are a copy; a store in a folder makes a hard link if it can.
//!
//! Only a store with an index has snapshots: no other tells when a blob was created.
//!
//! # A snapshot, and a deletion that must leave none behind
//!
//! Both may be in different processes. The blob's record has a field that each snapshot changes, and that other writes keep.
//!
//! ```text
//!   take      read the blob ─▶ write the snapshot ─▶ change the field, if it's still the same life ─▶ answer
//!   delete    read the field ─▶ look for snapshots ─▶ delete the blob, if the field is the same
//! ```
//!
//! - **The field changes before the deletion**: the deletion starts over, and its look finds the snapshot.
//! - **The deletion comes first**: the blob is gone, so the snapshot is removed, and its client gets 404.
//! - **A write in between** keeps the field, so neither has to start over.
//! - **The blob is deleted and recreated in between**: the snapshot belongs to the old life, so it leaves the new blob's field alone
//!   and fails the same way.
//! - **A crash before the field is changed** leaves a snapshot that wasn't acknowledged. It can be read, and keeps the blob from being
//!   deleted without it.
//!
//! The model is in `ifmatch_sim::snapshots`.
//!
//! # Other interleavings
//!
//! - **A snapshot, and a write.** The snapshot has the version that was opened, with its own file. Neither the write nor the garbage
//!   collection of bodies has anything to do with that file.
//! - **Two snapshots in the same microsecond.** Only one can create its name, and the other takes a later one.
//! - **A snapshot of a later version, and a deletion of the snapshots alone.** The deletion evaluates its condition on one version,
//!   another one is written, and its snapshot is taken and answered: the deletion must spare it. So it lists the snapshots first, and then
//!   evaluates its condition.
//! - **A snapshot, and a deletion with snapshots, or by another dialect.** The snapshot may be acknowledged
//!   just before the deletion. It's deleted with the blob, or unreachable and collected later.
//! - **A crash after the deletion of a blob, before its snapshots'.** They are garbage.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::{self, BlobName, BlobPath, ContainerName};
use ifmatch_blob::records::nonce;
use ifmatch_blob::store::{
    BlobInfo, ContainerInfo, Delete, HeaderChange, LastSnapshot, ListQuery, Opened, Put, Reading,
    SetHeaders, StoreError, StoreErrorKind,
};
use ifmatch_blob::sweep::remove_old;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_runtime::task;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::block_storage::staging::{BlobPaths, SNAPSHOTS};
use crate::block_storage::{CommittedList, open_with_list};
use crate::error::AzureError;
use crate::request::snapshot::{SnapshotDeletion, SnapshotTime};
use crate::request::{TakeSnapshot, WriteHeaders};
use crate::{lookup, response, write};

const SNAPSHOT: HeaderName = HeaderName::from_static("x-ms-snapshot");
/// Number of snapshots read from the store at a time.
const STEP: usize = 500;
/// Number of snapshots deleted at the same time.
const PARALLEL: usize = 16;
/// Maximum number of attempts to find a time that no other snapshot of the blob has.
const TIMES: u64 = 100;
/// Maximum number of attempts to delete a blob of which snapshots are taken, and deleted, in the meantime.
const DELETIONS: usize = 8;
/// Age at which unreachable snapshots are removed.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// A blob from its creation to its deletion.
struct BlobLife {
    created: Timestamp,
    /// Prefix of the names of its snapshots.
    folder: String,
}

impl BlobLife {
    /// Returns the current life of a blob, or `None` if the store doesn't tell when a blob was created.
    fn of(container: &ContainerInfo, blob: &BlobPath, info: &BlobInfo) -> Option<Self> {
        let (opened, created) = (container.created?.micros(), info.created?);
        let name = ContentHash::of(blob.name.as_str().as_bytes()).hex();
        Some(Self {
            created,
            folder: format!(
                "{}/{opened:016x}/{name}/{:016x}/",
                blob.container,
                created.micros()
            ),
        })
    }

    /// Finds the current life of a blob, and its properties. `None` if there is no blob, or if the store has no snapshots.
    async fn find(
        context: &Context,
        blob: &BlobPath,
    ) -> Result<Option<(Self, BlobInfo)>, AzureError> {
        let Some(opened) = context
            .store
            .open(blob, Reading::HEAD)
            .await
            .map_err(AzureError::of_blob)?
        else {
            return Ok(None);
        };
        let container = lookup::container(context, &blob.container).await?;
        Ok(Self::of(&container, blob, &opened.info).map(|life| (life, opened.info)))
    }

    /// Returns the path at which the snapshot of this time is stored.
    fn path(&self, time: SnapshotTime) -> Result<BlobPath, AzureError> {
        let name = BlobName::new(&format!("{}{}", self.folder, time.name()))?;
        Ok(BlobPath {
            container: SNAPSHOTS.clone(),
            name,
        })
    }

    /// Returns the oldest snapshots after a time, and `true` if there are more.
    async fn page(
        &self,
        context: &Context,
        after: Option<SnapshotTime>,
        limit: usize,
    ) -> Result<(Vec<(SnapshotTime, BlobInfo)>, bool), AzureError> {
        let after = after.map(|time| format!("{}{}", self.folder, time.name()));
        let query = ListQuery {
            prefix: self.folder.clone(),
            after,
            ..ListQuery::first(limit)
        };
        let page = context
            .store
            .list(&SNAPSHOTS, &query)
            .await
            .map_err(AzureError::of_blob)?;
        let Some(page) = page else {
            return Ok((Vec::new(), false));
        };
        let snapshots = page.items.into_iter().filter_map(|entry| {
            let time =
                u64::from_str_radix(entry.name.as_str().strip_prefix(&self.folder)?, 16).ok()?;
            Some((SnapshotTime::of_micros(time)?, self.restored(entry.info)))
        });
        Ok((snapshots.collect(), page.next.is_some()))
    }

    /// Returns the properties of the version of which a snapshot was taken.
    fn restored(&self, mut info: BlobInfo) -> BlobInfo {
        if let Some(origin) = info
            .headers
            .snapshot
            .take()
            .and_then(|text| SnapshotOrigin::parse(text.as_str()))
        {
            (info.tag, info.last_modified) = (origin.tag.or(info.tag), origin.last_modified);
        }
        (info.created, info.lease) = (Some(self.created), None);
        info
    }

    /// Returns the times of all snapshots.
    async fn times(&self, context: &Context) -> Result<Vec<SnapshotTime>, AzureError> {
        let mut times = Vec::new();
        loop {
            let (snapshots, has_more) = self.page(context, times.last().copied(), STEP).await?;
            times.extend(snapshots.into_iter().map(|(time, _)| time));
            if !has_more {
                return Ok(times);
            }
        }
    }

    /// Removes these snapshots. Those that can't be removed are garbage if the blob was deleted.
    async fn discard(&self, context: &Context, times: Vec<SnapshotTime>) -> Result<(), AzureError> {
        let deletions = stream::iter(times).map(async |time| {
            match context
                .store
                .delete(&self.path(time)?, Delete::default())
                .await
            {
                Err(error) if *error.kind() != StoreErrorKind::NotFound => {
                    Err(AzureError::of_blob(error))
                }
                _ => Ok(()),
            }
        });
        deletions
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await
    }

    /// Removes all snapshots.
    async fn discard_all(&self, context: &Context) -> Result<(), AzureError> {
        self.discard(context, self.times(context).await?).await
    }
}

/// The version of which a snapshot was taken. Stores keep it in the form of its text.
struct SnapshotOrigin {
    /// The tag of the snapshot, if the store knows it.
    tag: Option<EntityTag>,
    last_modified: HttpDate,
    /// The name of the blob.
    name: String,
}

impl SnapshotOrigin {
    /// Reads the text that a store keeps.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (tag, date, name) = (
            parts.next()?,
            parts.next()?.parse().ok()?,
            name::decode(parts.next()?).ok()?,
        );
        let tag = EntityTag::parse(tag.as_bytes()).ok();
        Some(Self {
            tag,
            last_modified: HttpDate::from_unix(date),
            name: name.into_owned(),
        })
    }

    /// Returns the text for the store.
    fn to_field(&self) -> Result<FieldText, AzureError> {
        let tag = self
            .tag
            .as_ref()
            .map_or("-".to_owned(), ToString::to_string);
        let text = format!(
            "{tag} {} {}",
            self.last_modified.unix(),
            utf8_percent_encode(&self.name, NON_ALPHANUMERIC)
        );
        FieldText::new(&text).map_err(|_| unsupported())
    }
}

/// Snapshot Blob.
pub(crate) async fn take(
    context: &Context,
    blob: &BlobPath,
    take: TakeSnapshot,
) -> Result<Response<BlobBody>, AzureError> {
    if !context.store.has_index() {
        return Err(unsupported());
    }
    write::check(context, blob, &take.write.conditions, take.write.lease).await?;
    let (context, blob) = (context.clone(), blob.clone());
    to_the_end(async move {
        let now = context.wall().micros();
        for time in (now..now.saturating_add(TIMES)).filter_map(SnapshotTime::of_micros) {
            if let Some(taken) = take_at(&context, &blob, &take, time).await? {
                return Ok(taken);
            }
        }
        Err(AzureError::busy())
    })
    .await
}

/// Takes a snapshot with this time, unless another one has it.
async fn take_at(
    context: &Context,
    blob: &BlobPath,
    take: &TakeSnapshot,
    time: SnapshotTime,
) -> Result<Option<Response<BlobBody>>, AzureError> {
    let container = lookup::container(context, &blob.container).await?;
    let store = &*context.store;
    let open = || async {
        let opened = store.open(blob, Reading::WHOLE).await;
        opened.map_err(AzureError::of_blob)
    };
    let paths = BlobPaths::within(&container, blob);
    let opened = open_with_list(store, &paths, None, open).await?;
    let (opened, list) = opened.ok_or_else(AzureError::blob_not_found)?;
    write::evaluate(&opened.info, &take.write)?;
    let life = BlobLife::of(&container, blob, &opened.info).ok_or_else(unsupported)?;
    let path = life.path(time)?;
    let tag = opened.info.tag.clone();
    let tag = match &take.metadata {
        // With other metadata, it is another representation.
        Some(_) => tag.and_then(|tag| tag.with_suffix(&format!("-{:x}", time.0)).ok()),
        None => tag,
    };
    let origin = SnapshotOrigin {
        tag,
        last_modified: opened.info.last_modified,
        name: blob.name.as_str().to_owned(),
    };
    let BlobHeaders {
        copied, tier, tags, ..
    } = opened.info.headers.clone();
    let mut whole = Put::copying(blob, opened)
        .await
        .map_err(AzureError::of_blob)?;
    (whole.headers.copied, whole.headers.tier, whole.headers.tags) = (copied, tier, tags);
    whole.headers.snapshot = Some(origin.to_field()?);
    if let Some(metadata) = &take.metadata {
        whole.headers.metadata = metadata.clone();
    }
    if let Some(list) = list {
        let paths = BlobPaths::of_snapshot(&path);
        // If the snapshot isn't written, the list is garbage.
        let saved = CommittedList::prepare(store, &path, &paths, list.blocks).await?;
        whole.headers = saved.name_in(&whole.headers);
    }
    let put = Put {
        preconditions: Preconditions::absent(),
        ..whole
    };
    let written = match context.store.put(&path, put).await {
        Err(error) if matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. }) => {
            return Ok(None);
        }
        written => written.map_err(AzureError::of_blob)?,
    };
    if let Err(error) = announce(context, blob, &life).await {
        if *error.kind() == StoreErrorKind::NotFound {
            // The blob was deleted: this isn't its snapshot.
            life.discard(context, vec![time]).await?;
        }
        return Err(AzureError::of_blob(error));
    }
    let tag = origin.tag.or(written.tag);
    let mut response = response::empty(
        StatusCode::CREATED,
        tag.as_ref(),
        Some(origin.last_modified),
    );
    response.headers_mut().extend(
        HeaderValue::try_from(time.to_string())
            .ok()
            .map(|time| (SNAPSHOT, time)),
    );
    response::set_not_encrypted(&mut response);
    Ok(Some(response))
}

/// Changes the field of the blob by which a deletion learns of a snapshot.
async fn announce(context: &Context, blob: &BlobPath, life: &BlobLife) -> Result<(), StoreError> {
    let last = FieldText::new(&format!("{:016x}", nonce()?));
    let last = last.map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))?;
    let change = HeaderChange::Snapshot {
        last,
        created: life.created,
    };
    let set = SetHeaders {
        lease: LeaseUse::Read(None),
        ..SetHeaders::new(change)
    };
    context.store.set_headers(blob, set).await.map(drop)
}

/// Returns the paths of the blocks of a blob, or of one of its snapshots, which has committed ones only.
pub(crate) async fn block_paths(
    context: &Context,
    blob: &BlobPath,
    snapshot: Option<SnapshotTime>,
) -> Result<BlobPaths, AzureError> {
    let paths = BlobPaths::of(context, blob).await?;
    let Some(time) = snapshot else {
        return Ok(paths);
    };
    let found = BlobLife::find(context, blob).await?;
    let (life, _) = found.ok_or_else(AzureError::blob_not_found)?;
    Ok(BlobPaths::of_snapshot(&life.path(time)?))
}

/// Opens a blob, or one of its snapshots.
pub(crate) async fn open(
    context: &Context,
    blob: &BlobPath,
    snapshot: Option<SnapshotTime>,
    reading: Reading,
) -> Result<Option<Opened>, AzureError> {
    let Some(time) = snapshot else {
        return context
            .store
            .open(blob, reading)
            .await
            .map_err(AzureError::of_blob);
    };
    let Some((life, _)) = BlobLife::find(context, blob).await? else {
        return Ok(None);
    };
    let opened = context
        .store
        .open(&life.path(time)?, reading.without_lease())
        .await
        .map_err(AzureError::of_blob)?;
    Ok(opened.map(|Opened { info, source }| Opened {
        info: life.restored(info),
        source,
    }))
}

/// Returns the oldest snapshots of a listed blob after a time, and `true` if there are more.
pub(crate) async fn of_listed(
    context: &Context,
    container: &ContainerInfo,
    blob: (&BlobPath, &BlobInfo),
    after: Option<SnapshotTime>,
) -> Result<(Vec<(SnapshotTime, BlobInfo)>, bool), AzureError> {
    match BlobLife::of(container, blob.0, blob.1).filter(|_| may_exist(context)) {
        Some(life) => life.page(context, after, STEP).await,
        None => Ok((Vec::new(), false)),
    }
}

/// Deletes a blob, its snapshots, or both.
pub(crate) async fn delete(
    context: &Context,
    blob: &BlobPath,
    write: WriteHeaders,
    deletion: SnapshotDeletion,
) -> Result<(), AzureError> {
    let delete = Delete {
        preconditions: write.conditions.preconditions.clone(),
        lease: write.lease,
        request: write.request.clone(),
        last_snapshot: None,
    };
    match deletion {
        // Any other store has no snapshots.
        SnapshotDeletion::Bare if context.store.has_index() => {
            for _ in 0..DELETIONS {
                let last_snapshot = Some(refuse_snapshots(context, blob, &write).await?);
                let delete = Delete {
                    last_snapshot,
                    ..delete.clone()
                };
                match context.store.delete(blob, delete).await {
                    Err(error) if *error.kind() == StoreErrorKind::SnapshotTaken => {}
                    deleted => return explained(context, blob, deleted).await,
                }
            }
            Err(AzureError::busy())
        }
        SnapshotDeletion::Include if may_exist(context) => {
            let (context, blob) = (context.clone(), blob.clone());
            to_the_end(async move {
                let life = BlobLife::find(&context, &blob).await?;
                explained(&context, &blob, context.store.delete(&blob, delete).await).await?;
                if let Some((life, _)) = life
                    && let Err(error) = life.discard_all(&context).await
                {
                    tracing::warn!(error = %error.message, "snapshots of a deleted blob remain; they are collected later");
                }
                Ok(())
            })
            .await
        }
        SnapshotDeletion::Bare | SnapshotDeletion::Include => {
            explained(context, blob, context.store.delete(blob, delete).await).await
        }
        SnapshotDeletion::Only => {
            lookup::container(context, &blob.container).await?;
            let found = if may_exist(context) {
                BlobLife::find(context, blob).await?
            } else {
                None
            };
            let snapshots = match found {
                Some((life, _)) => Some((life.times(context).await?, life)),
                None => None,
            };
            let opened = context
                .store
                .open(blob, Reading::HEAD)
                .await
                .map_err(AzureError::of_blob)?;
            write::evaluate(&opened.ok_or_else(AzureError::blob_not_found)?.info, &write)?;
            let Some((times, life)) = snapshots else {
                return Ok(());
            };
            let context = context.clone();
            to_the_end(async move { life.discard(&context, times).await }).await
        }
        SnapshotDeletion::One(time) => {
            let Some(opened) = open(context, blob, Some(time), Reading::HEAD).await? else {
                lookup::container(context, &blob.container).await?;
                return Err(AzureError::blob_not_found());
            };
            write::evaluate(&opened.info, &write)?;
            let found = BlobLife::find(context, blob).await?;
            let (life, _) = found.ok_or_else(AzureError::blob_not_found)?;
            context
                .store
                .delete(&life.path(time)?, Delete::default())
                .await
                .map_err(AzureError::of_blob)
        }
    }
}

/// Refuses to delete a blob with snapshots alone. Its lease and a false condition are reported first. If it has none, returns the last
/// one that it had before the look.
async fn refuse_snapshots(
    context: &Context,
    blob: &BlobPath,
    write: &WriteHeaders,
) -> Result<LastSnapshot, AzureError> {
    let Some((life, info)) = BlobLife::find(context, blob).await? else {
        return Ok(LastSnapshot::default());
    };
    if !may_exist(context) || life.page(context, None, 1).await?.0.is_empty() {
        return Ok(LastSnapshot(info.headers.last_snapshot));
    }
    write::evaluate(&info, write)?;
    let message =
        "the blob has snapshots: delete them first, or with it (x-ms-delete-snapshots: include)";
    Err(AzureError::new(
        StatusCode::CONFLICT,
        "SnapshotsPresent",
        message,
    ))
}

/// Translates the result of a deletion.
async fn explained(
    context: &Context,
    blob: &BlobPath,
    deleted: Result<(), StoreError>,
) -> Result<(), AzureError> {
    match deleted {
        Ok(()) => Ok(()),
        Err(error) => Err(write::explain(context, blob, error).await),
    }
}

/// Returns `true` unless it is known that there are no snapshots at all.
fn may_exist(context: &Context) -> bool {
    context
        .store
        .peek()
        .is_some_and(|store| !store.is_empty(&SNAPSHOTS))
}

/// Removes the snapshots that can't be reached, and returns their number.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    if !may_exist(context) {
        return Ok(0);
    }
    remove_old(
        context,
        "snapshots",
        MAX_AGE,
        &[(&SNAPSHOTS, |context, place| is_used(context, place).boxed())],
    )
    .await
}

/// Returns `true` if a snapshot belongs to the current life of its blob, or if it can't be told.
async fn is_used(context: &Context, place: &BlobPath) -> Result<bool, StoreError> {
    let store = &*context.store;
    let snapshot = store.open(place, Reading::HEAD.without_lease()).await?;
    let origin =
        snapshot.and_then(|opened| SnapshotOrigin::parse(opened.info.headers.snapshot?.as_str()));
    let container = place.name.as_str().split('/').next().unwrap_or_default();
    let (Some(origin), Ok(container)) = (origin, ContainerName::new(container)) else {
        return Ok(true);
    };
    let Ok(name) = BlobName::new(&origin.name) else {
        return Ok(true);
    };
    let blob = BlobPath { container, name };
    let Some(container) = store.container(&blob.container).await? else {
        return Ok(false);
    };
    let Some(opened) = store.open(&blob, Reading::HEAD.without_lease()).await? else {
        return Ok(false);
    };
    let life = BlobLife::of(&container, &blob, &opened.info);
    Ok(life.is_none_or(|life| place.name.as_str().starts_with(&life.folder)))
}

/// Runs to the end even if the client disconnects.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, AzureError>> + Send + 'static,
) -> Result<T, AzureError> {
    task::detach(work)
        .result()
        .await
        .unwrap_or_else(|| Err(AzureError::internal()))
}

/// The error for a store that can't have snapshots.
fn unsupported() -> AzureError {
    let message = "in front of an object store (--store), no snapshots are taken";
    AzureError::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        for tag in [None, EntityTag::strong("7f3a-1").ok()] {
            let origin = SnapshotOrigin {
                tag: tag.clone(),
                last_modified: HttpDate::from_unix(7),
                name: "a b/\u{fc} c".into(),
            };
            let read = SnapshotOrigin::parse(origin.to_field().expect("writable").as_str())
                .expect("an origin");
            assert_eq!(
                (read.tag, read.last_modified, read.name),
                (tag, origin.last_modified, origin.name)
            );
        }
    }
}
