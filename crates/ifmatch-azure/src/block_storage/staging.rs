//! The internal blobs that hold the staged blocks and the block list of a blob.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt, stream};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobStore, ContainerInfo, Delete, ListQuery, Reading, StoreError, Written,
};
use ifmatch_blob::sweep::{IsUsed, remove_old};
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;

use super::committed::CommittedList;
use crate::error::AzureError;
use crate::lookup;
use crate::request::BlockId;

/// Number of entries read from the store at a time.
const STEP: usize = 1000;
/// Maximum number of blocks removed concurrently.
const PARALLEL: usize = 16;

/// The container of all staged blocks.
static STAGED_BLOCKS: LazyLock<ContainerName> = LazyLock::new(|| internal("blocks"));
/// The container of all lists of committed blocks.
static COMMITTED_LISTS: LazyLock<ContainerName> = LazyLock::new(|| internal("blocklists"));

/// The container of all snapshots.
pub(crate) static SNAPSHOTS: LazyLock<ContainerName> = LazyLock::new(|| internal("snapshots"));

#[expect(clippy::expect_used, reason = "the names have only letters")]
fn internal(name: &str) -> ContainerName {
    ContainerName::internal(name).expect("the name is valid")
}

/// The internal paths that belong to one blob.
///
/// They contain the creation time of the blob's container, so a container created again under the same name has no
/// blocks.
pub(crate) struct BlobPaths {
    owner: StagingOwner,
    folder: String,
}

/// The container for which blocks are staged.
#[derive(Clone)]
pub(crate) struct StagingOwner {
    container: ContainerName,
    created: Option<Timestamp>,
}

impl StagingOwner {
    /// Returns `true` if the container wasn't replaced or removed. Without a known creation time, assumes so.
    pub(crate) async fn is_there(&self, store: &dyn BlobStore) -> Result<bool, StoreError> {
        let Some(created) = self.created else {
            return Ok(true);
        };
        Ok(store
            .container(&self.container)
            .await?
            .is_some_and(|info| info.created == Some(created)))
    }
}

/// A staged block.
#[derive(Clone, Debug)]
pub(crate) struct StagedBlock {
    pub(crate) path: BlobPath,
    pub(crate) length: u64,
    pub(crate) tag: Option<EntityTag>,
}

/// The staged blocks of a blob.
pub(crate) type StagedBlocks = BTreeMap<BlockId, StagedBlock>;

impl BlobPaths {
    /// Looks up the blob's container and returns the paths.
    pub(crate) async fn of(context: &Context, blob: &BlobPath) -> Result<Self, AzureError> {
        Ok(Self::within(
            &lookup::container(context, &blob.container).await?,
            blob,
        ))
    }

    /// Returns the paths of a blob in this container.
    pub(crate) fn within(container: &ContainerInfo, blob: &BlobPath) -> Self {
        Self::new(blob, container.created)
    }

    /// Returns the paths of a snapshot. Its name is never used again.
    pub(crate) fn of_snapshot(snapshot: &BlobPath) -> Self {
        Self::new(snapshot, None)
    }

    fn new(blob: &BlobPath, created: Option<Timestamp>) -> Self {
        let owner = StagingOwner {
            container: blob.container.clone(),
            created,
        };
        let created = owner.created.map_or(0, Timestamp::micros);
        let name = ContentHash::of(blob.name.as_str().as_bytes()).hex();
        let folder = format!("{}/{created:016x}/{name}/", blob.container);
        Self { owner, folder }
    }

    /// Returns the path of a staged block.
    pub(crate) fn block(&self, id: &BlockId) -> Result<BlobPath, AzureError> {
        Ok(BlobPath {
            container: STAGED_BLOCKS.clone(),
            name: BlobName::new(&format!("{}{}", self.folder, id.to_hex()))?,
        })
    }

    /// Returns the container for which the blocks are staged.
    pub(crate) fn owner(&self) -> StagingOwner {
        self.owner.clone()
    }

    /// Returns the path of a list of committed blocks.
    pub(super) fn list(&self, id: &str) -> Result<BlobPath, AzureError> {
        Ok(BlobPath {
            container: COMMITTED_LISTS.clone(),
            name: BlobName::new(&format!("{}{id}", self.folder))?,
        })
    }

    /// Loads the staged blocks, ordered by id. They take their memory from `memory`, if it is given.
    pub(crate) async fn staged(
        &self,
        store: &dyn BlobStore,
        mut memory: Option<&mut DocumentMemory>,
    ) -> Result<StagedBlocks, AzureError> {
        let mut staged = StagedBlocks::new();
        let mut after = None;
        loop {
            let (blocks, next) = self.page(store, after, STEP).await?;
            if let Some(memory) = &mut memory {
                let size = |(_, block): &(BlockId, StagedBlock)| {
                    size_of::<StagedBlock>() + 2 * block.path.name.as_str().len()
                };
                memory
                    .grow(blocks.iter().map(size).sum())
                    .map_err(AzureError::crowded)?;
            }
            staged.extend(blocks);
            after = next;
            if after.is_none() {
                return Ok(staged);
            }
        }
    }

    /// Returns the id of any staged block.
    pub(crate) async fn any(&self, store: &dyn BlobStore) -> Result<Option<BlockId>, AzureError> {
        Ok(self
            .page(store, None, 1)
            .await?
            .0
            .into_iter()
            .next()
            .map(|(id, _)| id))
    }

    /// Returns staged blocks, and the name after which more of them follow.
    async fn page(
        &self,
        store: &dyn BlobStore,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<(BlockId, StagedBlock)>, Option<String>), AzureError> {
        let query = ListQuery {
            prefix: self.folder.clone(),
            after,
            ..ListQuery::first(limit)
        };
        let Some(page) = store
            .list(&STAGED_BLOCKS, &query)
            .await
            .map_err(AzureError::of_blob)?
        else {
            return Ok((Vec::new(), None));
        };
        let staged = page.items.into_iter().filter_map(|entry| {
            let id = BlockId::from_hex(entry.name.as_str().strip_prefix(&self.folder)?)?;
            let path = BlobPath {
                container: STAGED_BLOCKS.clone(),
                name: entry.name,
            };
            Some((
                id,
                StagedBlock {
                    path,
                    length: entry.info.length,
                    tag: entry.info.tag,
                },
            ))
        });
        Ok((staged.collect(), page.next))
    }
}

/// Returns all blocks staged for a blob in an existing container.
pub(crate) async fn all(context: &Context, blob: &BlobPath) -> Result<StagedBlocks, AzureError> {
    let container = lookup::container(context, &blob.container).await?;
    if context
        .store
        .peek()
        .is_some_and(|store| store.is_empty(&STAGED_BLOCKS))
    {
        return Ok(StagedBlocks::new());
    }
    BlobPaths::within(&container, blob)
        .staged(&*context.store, None)
        .await
}

/// Removes the blocks that were staged before a write. If it was made before, by an earlier attempt, they may have been staged since.
pub(crate) async fn discard_after(store: &dyn BlobStore, staged: StagedBlocks, written: &Written) {
    if !written.is_replay {
        discard(store, staged).await;
    }
}

/// Removes staged blocks, unless they have been staged again since. Blocks that can't be removed now are garbage
/// collected later.
pub(crate) fn discard(store: &dyn BlobStore, staged: StagedBlocks) -> BoxFuture<'_, ()> {
    if staged.is_empty() {
        return ready(()).boxed();
    }
    let remove = async |block: StagedBlock| drop(remove(store, &block.path, block.tag).await);
    stream::iter(staged.into_values())
        .for_each_concurrent(PARALLEL, remove)
        .boxed()
}

/// Removes an internal blob if it still has this tag.
async fn remove(
    store: &dyn BlobStore,
    path: &BlobPath,
    tag: Option<EntityTag>,
) -> Result<(), StoreError> {
    store.delete(path, Delete::of_version(tag.as_ref())).await
}

/// Retention of staged blocks.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Removes garbage and returns the number of entries removed. Continues an interrupted sweep.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    let blocks = (&*STAGED_BLOCKS, (|_, _| ready(Ok(false)).boxed()) as IsUsed);
    let lists = (
        &*COMMITTED_LISTS,
        (|context, list| is_used(context, list).boxed()) as IsUsed,
    );
    remove_old(context, "blocks", MAX_AGE, &[blocks, lists]).await
}

/// Returns `true` if a list belongs to the current version of its blob.
async fn is_used(context: &Context, place: &BlobPath) -> Result<bool, StoreError> {
    let Some(list) = CommittedList::load(&*context.store, place).await? else {
        return Ok(false);
    };
    let owner = place.name.as_str().split('/').next().unwrap_or_default();
    let container = if owner == SNAPSHOTS.as_str() {
        Ok(SNAPSHOTS.clone())
    } else {
        ContainerName::new(owner)
    };
    let (Ok(container), Ok(name)) = (container, BlobName::new(&list.name)) else {
        return Ok(false);
    };
    let opened = context
        .store
        .open(&BlobPath { container, name }, Reading::HEAD)
        .await?;
    Ok(opened.is_some_and(|opened| list.belongs_to(&opened.info, place)))
}
