//! Where the staged blocks of a blob lie, and the list of its committed ones.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;

use super::super::error::AzureError;
use super::super::{Call, container};
use super::BlockId;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, InvalidName};
use ifmatch_blob::store::{BlobStore, ContainerInfo, Delete, ListQuery, StoreError};

/// How many entries are read from the store at a time.
const STEP: usize = 1000;
/// How many blocks are removed at a time.
const PARALLEL: usize = 16;

/// The container of all staged blocks.
pub(crate) fn staged_blocks() -> Result<ContainerName, InvalidName> {
    ContainerName::internal("blocks")
}

/// The container of the lists of committed blocks.
pub(super) fn committed_lists() -> Result<ContainerName, InvalidName> {
    ContainerName::internal("blocklists")
}

/// The places that belong to one blob.
///
/// The time at which the blob's container was created is part of their names: a container that is created again under its
/// name has no blocks.
pub(crate) struct Shelf {
    owner: Owner,
    folder: String,
    blocks: ContainerName,
}

/// The container whose blobs the blocks are for.
#[derive(Clone)]
pub(super) struct Owner {
    container: ContainerName,
    created: Option<Timestamp>,
}

impl Owner {
    /// Whether the container is still the one that it was. One whose creation the store does not know is.
    pub(super) async fn is_there(&self, store: &dyn BlobStore) -> Result<bool, StoreError> {
        let Some(created) = self.created else { return Ok(true) };
        Ok(store.container(&self.container).await?.is_some_and(|info| info.created == Some(created)))
    }
}

/// A staged block.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    pub(super) path: BlobPath,
    pub(super) length: u64,
    pub(super) tag: Option<EntityTag>,
}

/// The staged blocks of a blob.
pub(crate) type StagedBlocks = BTreeMap<BlockId, Staged>;

impl Shelf {
    /// The places of a blob, whose container exists.
    pub(crate) async fn of(call: &Call, blob: &BlobPath) -> Result<Self, AzureError> {
        Self::within(&container::find(call, &blob.container).await?, blob)
    }

    /// The places of a blob whose container is this one.
    pub(crate) fn within(container: &ContainerInfo, blob: &BlobPath) -> Result<Self, AzureError> {
        let owner = Owner { container: blob.container.clone(), created: container.created };
        let created = owner.created.map_or(0, Timestamp::micros);
        let name = ContentHash::of(blob.name.as_str().as_bytes()).hex();
        let folder = format!("{}/{created:016x}/{name}/", blob.container);
        Ok(Self { owner, folder, blocks: staged_blocks()? })
    }

    /// Where a block is staged.
    pub(super) fn block(&self, id: &BlockId) -> Result<BlobPath, AzureError> {
        Ok(BlobPath { container: self.blocks.clone(), name: BlobName::new(&format!("{}{}", self.folder, id.0))? })
    }

    /// The container to which all this belongs.
    pub(super) fn owner(&self) -> Owner {
        self.owner.clone()
    }

    /// Where the list of committed blocks is.
    pub(super) fn list(&self) -> Result<BlobPath, AzureError> {
        let name = BlobName::new(self.folder.trim_end_matches('/'))?;
        Ok(BlobPath { container: committed_lists()?, name })
    }

    /// The staged blocks, in the order of their ids.
    pub(crate) async fn staged(&self, store: &dyn BlobStore) -> Result<StagedBlocks, AzureError> {
        let mut staged = StagedBlocks::new();
        let mut after = None;
        loop {
            let page = self.page(store, after, STEP).await?;
            staged.extend(page.0);
            after = page.1;
            if after.is_none() {
                return Ok(staged);
            }
        }
    }

    /// One of the staged blocks, if there is any.
    pub(super) async fn any(&self, store: &dyn BlobStore) -> Result<Option<BlockId>, AzureError> {
        Ok(self.page(store, None, 1).await?.0.into_iter().next().map(|(id, _)| id))
    }

    async fn page(
        &self,
        store: &dyn BlobStore,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<(BlockId, Staged)>, Option<String>), AzureError> {
        let query = ListQuery { prefix: self.folder.clone(), after, limit };
        let Some(page) = store.list(&self.blocks, &query).await.map_err(AzureError::of_blob)? else {
            return Ok((Vec::new(), None));
        };
        let staged = page.items.into_iter().filter_map(|entry| {
            let id = BlockId(entry.name.as_str().strip_prefix(&self.folder)?.to_owned());
            let path = BlobPath { container: self.blocks.clone(), name: entry.name };
            Some((id, Staged { path, length: entry.info.length, tag: entry.info.tag }))
        });
        Ok((staged.collect(), page.next))
    }
}

/// Removes staged blocks that are of no use any more, unless they were staged again meanwhile. What cannot be removed now is
/// collected later.
pub(crate) fn discard(store: &dyn BlobStore, staged: StagedBlocks) -> BoxFuture<'_, ()> {
    if staged.is_empty() {
        return std::future::ready(()).boxed();
    }
    let remove = async |block: Staged| drop(remove(store, &block.path, block.tag).await);
    stream::iter(staged.into_values()).for_each_concurrent(PARALLEL, remove).boxed()
}

/// Removes a blob that is still the version of this tag.
pub(super) async fn remove(store: &dyn BlobStore, path: &BlobPath, tag: Option<EntityTag>) -> Result<(), StoreError> {
    let if_match = Some(TagList::Tags(tag.into_iter().collect()));
    let preconditions = Preconditions { if_match, ..Preconditions::default() };
    store.delete(path, Delete { preconditions, ..Delete::default() }).await
}
