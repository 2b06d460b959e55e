//! Which blocks a blob was made of.
//!
//! The list is a blob of its own, written after the blob it belongs to, and says whose it is: the hash of the content. It counts
//! only while the blob has that content, whatever was written in between. Where the store does not know the hash of what it has,
//! it counts for the one version of this tag.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Revision;
use ifmatch_core::tag::TagList;
use serde_json::{Value, json};

use super::BlockId;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, BlobStore, Put, Reading, StoreError, StoreErrorKind, Upload, Written};

/// How often a list is written anew because another one came in between.
const TRIES: usize = 5;

/// The blocks of a version, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedList {
    /// The name of the blob, for whoever collects lists of blobs that are gone.
    pub(super) name: String,
    /// The hash of the content, in hexadecimal.
    content: Option<String>,
    /// The tag of the version.
    tag: Option<String>,
    /// The number of the write that committed them.
    generation: Option<u64>,
    /// Each block's id and length.
    pub(super) blocks: Vec<(BlockId, u64)>,
}

impl CommittedList {
    /// The list of a version that was just written.
    pub(super) fn of(blob: &BlobPath, written: &Written, blocks: Vec<(BlockId, u64)>) -> Self {
        Self {
            name: blob.name.as_str().to_owned(),
            content: written.hash.map(|hash| hash.hex()),
            tag: written.tag.as_ref().map(ToString::to_string),
            generation: written.generation.map(Revision::get),
            blocks,
        }
    }

    /// The list that is kept at this place, if it can be read.
    pub(super) async fn load(store: &dyn BlobStore, place: &BlobPath) -> Result<Option<Self>, StoreError> {
        let Some(mut opened) = store.open(place, Reading::WHOLE).await? else { return Ok(None) };
        let bytes = opened.source.read(None).await?.collect().await?.to_bytes();
        Ok(serde_json::from_slice(&bytes).ok().and_then(|value| Self::from_json(&value)))
    }

    /// Keeps the list, unless a later one is there.
    pub(super) async fn save(&self, store: &dyn BlobStore, place: &BlobPath) -> Result<(), StoreError> {
        let text = self.to_json().to_string();
        for _ in 0..TRIES {
            let known = store.open(place, Reading::HEAD).await?.and_then(|opened| opened.info.tag);
            let there = if known.is_some() { Self::load(store, place).await? } else { None };
            // Where one of them has no number, nobody knows which is the later one. Only one of them is the blob's.
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

    /// Whether the list is that of this version.
    pub(super) fn belongs_to(&self, info: &BlobInfo) -> bool {
        let is_same = match &info.hash {
            Some(hash) => self.content == Some(hash.hex()),
            None => info.tag.is_some() && self.tag == info.tag.as_ref().map(ToString::to_string),
        };
        is_same && self.length() == Some(info.length)
    }

    /// Which bytes of the blob each block is. One that occurs twice has the same bytes both times.
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
