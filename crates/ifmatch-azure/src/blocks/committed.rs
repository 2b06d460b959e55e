//! The committed blocks of a blob.
//!
//! The list is stored as a separate blob, after the blob it belongs to, and names that blob's content hash. It is
//! valid while the blob has that content. In a store without content hashes, it is valid for the one version with its
//! tag.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use ifmatch_core::tag::TagList;
use serde_json::{Value, json};

use crate::request::block_id::BlockId;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, BlobStore, Put, Reading, StoreError, StoreErrorKind, Upload, Written};

/// Maximum number of attempts if other lists are stored meanwhile.
const TRIES: usize = 5;

/// The blocks of a version, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedList {
    /// The name of the blob, for the garbage collection.
    pub(super) name: String,
    /// The hash of the content, in hexadecimal.
    content: Option<String>,
    /// The tag of the version.
    tag: Option<String>,
    /// The generation of the write that committed them.
    generation: Option<u64>,
    /// The id and length of each block.
    pub(super) blocks: Vec<(BlockId, u64)>,
}

impl CommittedList {
    /// Builds the list of a version that was just written.
    pub(super) fn of(blob: &BlobPath, written: &Written, blocks: Vec<(BlockId, u64)>) -> Self {
        Self {
            name: blob.name.as_str().to_owned(),
            content: written.hash.map(|hash| hash.hex()),
            tag: written.tag.as_ref().map(ToString::to_string),
            generation: written.generation.map(Revision::get),
            blocks,
        }
    }

    /// Loads the list stored at this path, if it can be read.
    pub(super) async fn load(store: &dyn BlobStore, place: &BlobPath) -> Result<Option<Self>, StoreError> {
        let Some(mut opened) = store.open(place, Reading::WHOLE).await? else { return Ok(None) };
        let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes).ok().and_then(|value| Self::from_json(&value)))
    }

    /// Stores the list, unless a later one is stored.
    pub(super) async fn save(&self, store: &dyn BlobStore, place: &BlobPath) -> Result<(), StoreError> {
        let text = self.to_json().to_string();
        for _ in 0..TRIES {
            let known = store.open(place, Reading::HEAD).await?.and_then(|opened| opened.info.tag);
            let there = if known.is_some() { Self::load(store, place).await? } else { None };
            // Without generations, the order is unknown; `belongs_to` later determines which one is valid.
            let numbers = there.and_then(|there| Some((there.generation?, self.generation?)));
            if numbers.is_some_and(|(there, own)| there > own) {
                return Ok(());
            }
            let preconditions = match known {
                Some(tag) => Preconditions { if_match: Some(TagList::Tags(vec![tag])), ..Preconditions::default() },
                None => Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() },
            };
            let body = Upload::new(Full::<Bytes>::from(text.clone()));
            match store.put(place, Put { preconditions, ..Put::new(body) }).await {
                Err(error) if matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. }) => {}
                result => return result.map(drop),
            }
        }
        Err(StoreErrorKind::Unavailable.into())
    }

    /// Returns `true` if the list belongs to this version.
    pub(super) fn belongs_to(&self, info: &BlobInfo) -> bool {
        let is_same = match &info.hash {
            Some(hash) => self.content == Some(hash.hex()),
            None => info.tag.is_some() && self.tag == info.tag.as_ref().map(ToString::to_string),
        };
        is_same && self.length() == Some(info.length)
    }

    /// Returns the byte range of each block. The occurrences of a repeated block have the same content.
    pub(super) fn ranges(&self) -> HashMap<&BlockId, Range<u64>> {
        let mut start = 0;
        let mut ranges = HashMap::new();
        for (id, length) in &self.blocks {
            ranges.entry(id).or_insert(start..start + length);
            start += length;
        }
        ranges
    }

    fn length(&self) -> Option<u64> {
        self.blocks.iter().try_fold(0_u64, |sum, (_, length)| sum.checked_add(*length))
    }

    fn to_json(&self) -> Value {
        let blocks: Vec<Value> = self.blocks.iter().map(|(id, length)| json!([id.0, length])).collect();
        let Self { name, content, tag, generation, .. } = self;
        json!({ "name": name, "content": content, "tag": tag, "generation": generation, "blocks": blocks })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let block = |block: &Value| Some((BlockId(block.get(0)?.as_str()?.to_owned()), block.get(1)?.as_u64()?));
        Some(Self {
            name: text("name")?,
            content: text("content"),
            tag: text("tag"),
            generation: value["generation"].as_u64(),
            blocks: value["blocks"].as_array()?.iter().map(block).collect::<Option<_>>()?,
        })
    }
}
