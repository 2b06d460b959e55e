//! The committed blocks of a blob.
//!
//! The list is a blob of its own, written before the version that is made of the blocks. The version names it, so the two become
//! visible in one step. A list that no version names, because the process ended in between, is garbage.
//!
//! A store that keeps no header fields with a blob loses the name. There, another list follows the version and names its tag, and a
//! version whose writer ends in between has no blocks.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{
    BlobInfo, BlobStore, Delete, Opened, Put, Reading, StoreError, Upload, Written,
};
use serde_json::{Value, json};

use super::staging::BlobPaths;
use crate::error::AzureError;
use crate::random_guid;
use crate::request::BlockId;

/// Name of the list that names its version, and not the reverse.
const BY_TAG: &str = "tag";

/// The blocks of a version, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommittedList {
    /// The name of the blob, for the garbage collection.
    pub(super) name: String,
    /// The tag of the version, if the version can't name the list.
    tag: Option<String>,
    /// The id and length of each block.
    pub(crate) blocks: Vec<(BlockId, u64)>,
}

/// A stored list that a version is about to name.
pub(crate) struct SavedList {
    list: CommittedList,
    id: FieldText,
    path: BlobPath,
}

impl SavedList {
    /// Adds the name of the list to the fields of the version.
    pub(crate) fn name_in(&self, headers: &BlobHeaders) -> BlobHeaders {
        BlobHeaders {
            block_list: Some(self.id.clone()),
            ..headers.clone()
        }
    }

    /// Ends the write of a version: removes the list of the previous one, or this list if no version names it. A list that can't be
    /// removed is garbage.
    pub(crate) async fn settle(
        self,
        store: &dyn BlobStore,
        blob: &BlobPath,
        paths: &BlobPaths,
        written: &Written,
        previous: Option<&FieldText>,
    ) -> Result<(), AzureError> {
        // A store that numbers the write keeps header fields.
        let is_named = (written.generation.is_some() && !written.is_replay)
            || self.is_named(store, blob).await?;
        if !is_named {
            discard(store, &self.path).await;
            if written.is_replay {
                return Ok(());
            }
        }
        if !is_named && written.generation.is_none() {
            let list = CommittedList {
                tag: written.tag.as_ref().map(ToString::to_string),
                ..self.list
            };
            list.save(store, &paths.list(BY_TAG)?)
                .await
                .map_err(AzureError::of_blob)?;
        }
        if let Some(previous) = previous {
            discard(store, &paths.list(previous.as_str())?).await;
        }
        Ok(())
    }

    /// Returns `true` if the current version names the list.
    async fn is_named(&self, store: &dyn BlobStore, blob: &BlobPath) -> Result<bool, AzureError> {
        let opened = store
            .open(blob, Reading::HEAD.without_lease())
            .await
            .map_err(AzureError::of_blob)?;
        Ok(opened.is_some_and(|opened| opened.info.headers.block_list.as_ref() == Some(&self.id)))
    }

    /// Removes the list of a write that had no effect.
    pub(crate) async fn abandon(self, store: &dyn BlobStore) {
        discard(store, &self.path).await;
    }
}

/// Removes a list, or leaves it to the garbage collection.
async fn discard(store: &dyn BlobStore, path: &BlobPath) {
    if let Err(error) = store.delete(path, Delete::default()).await {
        tracing::debug!(%error, "a block list remains; it is collected later");
    }
}

/// Maximum number of attempts to find a version with its list, if other versions replace it in between.
const TRIES: usize = 5;

/// Opens a version and its block list, which counts against `memory`. Tries again if a new version comes in between, since its writer
/// removes the old list.
pub(crate) async fn open_with_list<F: Future<Output = Result<Option<Opened>, AzureError>>>(
    store: &dyn BlobStore,
    paths: &BlobPaths,
    mut memory: Option<&mut DocumentMemory>,
    open: impl Fn() -> F,
) -> Result<Option<(Opened, Option<CommittedList>)>, AzureError> {
    let mut before = None;
    for _ in 0..TRIES {
        let Some(opened) = open().await? else {
            return Ok(None);
        };
        let list = CommittedList::find(store, paths, &opened.info, memory.as_deref_mut()).await?;
        let id = opened.info.headers.block_list.clone();
        // A list that is missing twice is lost; the bytes aren't.
        if list.is_some() || id.is_none() || id == before {
            return Ok(Some((opened, list)));
        }
        before = id;
    }
    Err(AzureError::busy())
}

/// Bytes of memory for each byte of a stored list while it is parsed.
const PARSED: usize = 4;

impl CommittedList {
    /// Stores the list of a version that is about to be written.
    pub(crate) async fn prepare(
        store: &dyn BlobStore,
        blob: &BlobPath,
        paths: &BlobPaths,
        blocks: Vec<(BlockId, u64)>,
    ) -> Result<SavedList, AzureError> {
        let id = random_guid()
            .and_then(|id| FieldText::new(&id.to_string()).ok())
            .ok_or_else(AzureError::busy)?;
        let list = Self {
            name: blob.name.as_str().to_owned(),
            tag: None,
            blocks,
        };
        let path = paths.list(id.as_str())?;
        list.save(store, &path).await.map_err(AzureError::of_blob)?;
        Ok(SavedList { list, id, path })
    }

    /// Loads the list of a version into `memory`, if it is given. Returns `None` if the version wasn't made of blocks, or has been replaced
    /// since.
    pub(crate) async fn find(
        store: &dyn BlobStore,
        paths: &BlobPaths,
        info: &BlobInfo,
        memory: Option<&mut DocumentMemory>,
    ) -> Result<Option<Self>, AzureError> {
        let path = paths.list(
            info.headers
                .block_list
                .as_ref()
                .map_or(BY_TAG, FieldText::as_str),
        )?;
        let list = Self::load_into(store, &path, memory)
            .await
            .map_err(AzureError::of_blob)?;
        Ok(list.filter(|list| list.belongs_to(info, &path)))
    }

    /// Loads the list stored at this path, if it can be read.
    pub(super) async fn load(
        store: &dyn BlobStore,
        path: &BlobPath,
    ) -> Result<Option<Self>, StoreError> {
        Self::load_into(store, path, None).await
    }

    /// Loads the list stored at this path, after taking its memory.
    async fn load_into(
        store: &dyn BlobStore,
        path: &BlobPath,
        memory: Option<&mut DocumentMemory>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(mut opened) = store.open(path, Reading::WHOLE.without_lease()).await? else {
            return Ok(None);
        };
        if let Some(memory) = memory {
            // Parsed, it takes several times as much.
            memory.grow(
                usize::try_from(opened.info.length)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(PARSED),
            )?;
        }
        let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes)
            .ok()
            .and_then(|value| Self::from_json(&value)))
    }

    async fn save(&self, store: &dyn BlobStore, path: &BlobPath) -> Result<(), StoreError> {
        store
            .put(
                path,
                Put::new(Upload::new(Full::<Bytes>::from(self.to_json().to_string()))),
            )
            .await
            .map(drop)
    }

    /// Returns `true` if the list at this path belongs to this version.
    pub(super) fn belongs_to(&self, info: &BlobInfo, path: &BlobPath) -> bool {
        let is_named = match &info.headers.block_list {
            Some(id) => path.name.as_str().rsplit('/').next() == Some(id.as_str()),
            None => self.tag.is_some() && self.tag == info.tag.as_ref().map(ToString::to_string),
        };
        is_named && self.length() == Some(info.length)
    }

    /// Returns the byte range of each block. The occurrences of a repeated block have the same content.
    pub(crate) fn ranges(&self) -> HashMap<&BlockId, Range<u64>> {
        let mut start = 0;
        let mut ranges = HashMap::new();
        for (id, length) in &self.blocks {
            ranges.entry(id).or_insert(start..start + length);
            start += length;
        }
        ranges
    }

    fn length(&self) -> Option<u64> {
        self.blocks
            .iter()
            .try_fold(0_u64, |sum, (_, length)| sum.checked_add(*length))
    }

    fn to_json(&self) -> Value {
        let blocks: Vec<Value> = self
            .blocks
            .iter()
            .map(|(id, length)| json!([id.to_hex(), length]))
            .collect();
        json!({ "name": self.name, "tag": self.tag, "blocks": blocks })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let block = |block: &Value| {
            Some((
                BlockId::from_hex(block.get(0)?.as_str()?)?,
                block.get(1)?.as_u64()?,
            ))
        };
        Some(Self {
            name: text("name")?,
            tag: text("tag"),
            blocks: value["blocks"]
                .as_array()?
                .iter()
                .map(block)
                .collect::<Option<_>>()?,
        })
    }
}
